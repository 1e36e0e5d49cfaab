"""The table of commands."""

from __future__ import annotations

from remoting import codes
from remoting.handlers import handlers
from tests.remoting.remoting_rig import RemotingClient

NOT_FOR_SERVERS = {codes.CHECK_TRANSACTION, codes.CONSUMERS_CHANGED, codes.PUSH_REPLY, codes.RESET_CLIENT_OFFSETS}


def test_every_code_that_clients_ask_for_has_a_handler() -> None:
    answers = {codes.SUCCESS, codes.SYSTEM_ERROR, codes.SYSTEM_BUSY, codes.NOT_SUPPORTED}
    first = list(vars(codes)).index("SEND")
    last = list(vars(codes)).index("DELETE_TOPIC_AT_NAMES")
    asked = {value for name, value in list(vars(codes).items())[first : last + 1] if name.isupper()}
    assert asked - set(handlers()) == set()
    assert set(handlers()) & (NOT_FOR_SERVERS | answers) == set()


def test_another_code_is_answered_as_not_supported(client: RemotingClient) -> None:
    answer = client.ask(200_050)
    assert answer.code == codes.NOT_SUPPORTED
    assert "200050" in answer.remark
