"""Load with a time table: everything is sent once, in its order, and a server that stalls is found out."""

from __future__ import annotations

import os

import pytest

from loadtest import generator, scenarios
from loadtest.generator import Order
from loadtest.run import perform
from tests.loadtest.small_server import SmallServer

pytestmark = pytest.mark.endtoend


def order(port: int, **changed: object) -> Order:
    given: dict[str, object] = {
        "host": "127.0.0.1",
        "port": port,
        "server_pid": os.getpid(),
        "run": "r",
        "publishers": 1,
        "subscribers": 0,
        "window": 100,
        "lag": 0,
        "payload_bytes": 16,
        "warm_s": 0.0,
        "measure_s": 0.1,
        "core": -1,
        "kind": scenarios.PACED,
        "per_s": 1000,
    }
    return Order(**{**given, **changed})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DRAIN_S", 0.3)
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)


@pytest.mark.parametrize(("publishers", "subscribers"), [(1, 0), (1, 1), (5, 0)])
def test_every_message_of_the_time_table_is_sent_and_counted(publishers: int, subscribers: int) -> None:
    seen: list[int] = []

    def count(number: int, packet: bytes) -> list[bytes]:
        seen.append(number)
        return [packet]

    with SmallServer(count) as server:
        outcome = perform(order(server.port, publishers=publishers, subscribers=subscribers))
    assert outcome.error == ""
    assert outcome.checked == len(seen) == 100
    assert 0 < outcome.messages <= 100
    assert 0 < outcome.p50_us <= outcome.p99_us
    assert outcome.figures["late_p99_us"] > 0


@pytest.mark.interpreted
def test_a_server_that_stops_acknowledging_gets_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with SmallServer(ack=lambda number, ack: [ack] if number < 20 else []) as server:
        assert "were not acknowledged" in perform(order(server.port)).error
    monkeypatch.setattr(generator, "RING_PACKETS_FEW", 16)
    with SmallServer(ack=lambda number, ack: [ack] if number < 20 else []) as server:
        assert perform(order(server.port)).error == "16 messages of one publisher wait for their PUBACK"
