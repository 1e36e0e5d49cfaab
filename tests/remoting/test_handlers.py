"""The table of commands."""

from __future__ import annotations

import pytest

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


SERVER_SIDE = (400, 401, *range(200_050, 200_057), 200_151)
"""What a Java client of 5.x asks for where it is set to have the server deal the queues."""


@pytest.mark.parametrize("code", SERVER_SIDE)
def test_another_code_is_answered_as_not_supported(code: int, client: RemotingClient) -> None:
    answer = client.ask(code)
    assert answer.code == codes.NOT_SUPPORTED
    assert str(code) in answer.remark
