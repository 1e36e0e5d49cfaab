"""A shared subscription under load: each message once to one member, and whatever else comes has no number."""

from __future__ import annotations

import pytest

from loadtest import generator, scenarios, shared
from loadtest.generator import Outcome
from loadtest.run import perform
from tests.loadtest.small_server import Fault, SmallServer
from tests.loadtest.test_paced import order

pytestmark = pytest.mark.endtoend


class SharingServer(SmallServer):
    """Gives each message to one subscriber, in turn."""

    def _publish(self, sock, packet):  # type: ignore[no-untyped-def]
        members, self._subscribers = self._subscribers, []
        at = self._published % len(members)
        self._subscribers = [members[at]]
        super()._publish(sock, packet)
        self._subscribers = members


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DRAIN_S", 0.3)
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)
    monkeypatch.setattr(shared, "RING_PACKETS", 64)


def run(fault: Fault = lambda number, packet: [packet], kind: type[SmallServer] = SharingServer) -> Outcome:
    with kind(fault) as server:
        return perform(order(server.port, kind=scenarios.SHARED, subscribers=4, window=10, lag=20))


def test_every_message_comes_to_one_member_and_all_have_their_share() -> None:
    outcome = run()
    assert outcome.error == ""
    assert outcome.checked >= max(10, outcome.messages) > 0
    assert outcome.figures["least_share"] > 0.7  # of ten messages, two
    assert 0 < outcome.p50_us <= outcome.p99_us


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda number, packet: [packet] * (1 + (number == 5)), "came twice"),
        pytest.param(
            lambda number, packet: [packet] * (number != 5),
            "not acknowledged or delivered",
            marks=pytest.mark.interpreted,
        ),
        (lambda number, packet: [packet[:-1] + b"x"], "no delivery of what was published"),
    ],
    ids=["twice", "lost", "changed"],
)
def test_a_run_with_a_wrong_delivery_has_no_number(fault: Fault, why: str) -> None:
    assert why in run(fault).error


def test_a_server_that_gives_all_to_all_is_found_out() -> None:
    assert "came twice" in run(kind=SmallServer).error
