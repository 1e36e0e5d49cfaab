"""Open exchanges: what a gateway is told of them, and which requests are refused. How messages begin exchanges is
tested with sessions (test_session_requests.py)."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.sessions import Exchanges, FetchExchanges, ReleaseExchanges
from tests.broker.broker_rig import Rig


def test_of_a_session_without_exchanges_there_is_nothing_to_tell_or_release() -> None:
    rig = Rig()
    assert rig.ask(FetchExchanges("c", 7, 9)) == Exchanges(())
    assert rig.ask(ReleaseExchanges("c", 7, (1,))) == Done()


@pytest.mark.parametrize(
    "request_",
    [
        FetchExchanges("", 7, 9),
        FetchExchanges("c", -1, 9),
        FetchExchanges("c", 7, 1 << 63),
        ReleaseExchanges("c", 7, (0,)),
        ReleaseExchanges("c", 7, (65_536,)),
    ],
)
def test_what_no_session_can_have_is_refused(request_: FetchExchanges | ReleaseExchanges) -> None:
    assert isinstance(Rig().ask(request_), InvalidRequest)


def test_more_ids_than_a_segment_holds_are_released_in_parts() -> None:
    rig = Rig(segment_bytes=1 << 14)
    for packet_id in (1, 9_999, 10_000):
        rig.state.exchanges.stored("c", 7, packet_id)
    assert rig.ask(ReleaseExchanges("c", 7, tuple(range(1, 10_000)))) == Done()
    assert rig.ask(FetchExchanges("c", 7, 9)) == Exchanges((10_000,))
