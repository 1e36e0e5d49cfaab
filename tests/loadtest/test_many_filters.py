"""Many filters: all of them are asked for, and only the one that matches is delivered to."""

from __future__ import annotations

import pytest

from loadtest import generator, many_filters, packets, scenarios
from loadtest.run import perform
from tests.loadtest.small_server import SmallServer, whole
from tests.loadtest.test_paced import order

pytestmark = pytest.mark.endtoend


class FilterServer(SmallServer):
    """Delivers to the first subscriber only and notes how many filters it was asked for, with each SUBSCRIBE."""

    def __init__(self, granted: int = 1) -> None:
        super().__init__()
        self.asked: list[int] = []
        self._granted = granted

    def _receive(self, sock):  # type: ignore[no-untyped-def]
        data = sock.recv(65536)
        found, self._rests[sock] = whole(self._rests[sock] + data)
        for packet in found:
            kind = packet[0] >> 4
            if kind == 1:
                sock.sendall(packets.CONNACK_OK)
            elif kind == 8:
                count = packet.count(b"/+/state")
                self.asked.append(count)
                self._subscribers += [sock] if len(self.asked) == 1 else []
                sock.sendall(packets.suback(count)[:-1] + bytes([self._granted]))
            elif kind == 3:
                self._publish(sock, packet)
        return bool(data)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)
    monkeypatch.setattr(many_filters, "SETTLES", 1)
    monkeypatch.setattr(many_filters, "RING_PACKETS", 128)
    monkeypatch.setattr(many_filters, "FILTERS_PER_CONNECTION", 3)
    monkeypatch.setattr(many_filters, "FEW", 2)


def test_the_cost_with_few_and_with_many_filters_is_told() -> None:
    with FilterServer() as server:
        outcome = perform(
            order(server.port, kind=scenarios.FILTERS, run="r", window=10, lag=20, filters=9, measure_s=0.3)
        )
    assert outcome.error == ""
    assert sum(server.asked) == 9
    assert outcome.checked > outcome.messages > 0
    assert outcome.figures["cost_ratio"] == outcome.figures["many_cpu_us"] / outcome.figures["few_cpu_us"]


def test_a_server_that_refuses_a_filter_gets_no_number() -> None:
    with FilterServer(granted=0x80) as server:
        outcome = perform(order(server.port, kind=scenarios.FILTERS, filters=9))
    assert "another SUBACK than expected" in outcome.error
