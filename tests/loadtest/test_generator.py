"""The generator against a small server: it counts every message, and a server that cheats gets no number."""

from __future__ import annotations

import os

import pytest

from loadtest import generator, scenarios
from loadtest.generator import Order, Outcome, percentile
from loadtest.run import perform
from tests.loadtest.small_server import Fault, SmallServer

pytestmark = pytest.mark.endtoend


def order(port: int, **changed: object) -> Order:
    given: dict[str, object] = {
        "host": "127.0.0.1",
        "port": port,
        "server_pid": os.getpid(),
        "run": "r",
        "publishers": 1,
        "subscribers": 0,
        "window": 10,
        "lag": 40,
        "payload_bytes": 16,
        "warm_s": 0.0,
        "measure_s": 0.05,
        "core": -1,
    }
    return Order(**{**given, **changed})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DRAIN_S", 0.3)
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)
    monkeypatch.setattr(generator, "RING_PACKETS_FEW", 64)


@pytest.mark.parametrize(("publishers", "subscribers"), [(1, 0), (1, 1), (1, 7), (5, 0)])
def test_every_message_is_counted(publishers: int, subscribers: int) -> None:
    seen: list[int] = []

    def count(number: int, packet: bytes) -> list[bytes]:
        seen.append(number)
        return [packet]

    with SmallServer(count) as server:
        outcome = perform(order(server.port, publishers=publishers, subscribers=subscribers))
    assert outcome.error == ""
    assert outcome.checked == len(seen) * max(subscribers, 1)
    assert 0 < outcome.messages <= outcome.checked
    assert outcome.rate == pytest.approx(outcome.messages / outcome.seconds)
    assert 0 < outcome.p50_us <= outcome.p99_us


def cases(rows: list[tuple[str, Fault, str]]) -> list[object]:
    """Parameters; compiled, the generator waits its full time for what does not come, so that is not tried."""
    impatient = [pytest.mark.interpreted]
    return [
        pytest.param(fault, said, id=name, marks=impatient * ("messages were not" in said))
        for name, fault, said in rows
    ]


# Of the first window, which goes out however little of the processor the run gets.
FAULTS: list[tuple[str, Fault, str]] = [
    ("loses one", lambda number, packet: [] if number == 5 else [packet], "must come"),
    ("doubles one", lambda number, packet: [packet] * (1 + (number == 5)), "must come"),
    ("changes one", lambda number, packet: [packet[:-1] + b"x"] if number == 5 else [packet], "must come"),
    ("sets DUP", lambda number, packet: [b"\x3a" + packet[1:]] if number == 5 else [packet], "must come"),
    ("stops delivering", lambda number, packet: [packet] if number < 5 else [], " messages were not"),
]


@pytest.mark.parametrize(("fault", "said"), cases(FAULTS))
def test_a_server_that_does_not_deliver_what_was_sent_gets_no_number(fault: Fault, said: str) -> None:
    with SmallServer(fault) as server:
        outcome = perform(order(server.port, subscribers=1))
    assert said in outcome.error
    assert outcome == Outcome(error=outcome.error)


ACK_FAULTS: list[tuple[str, Fault, str]] = [
    ("loses one", lambda number, ack: [] if number == 5 else [ack], "PUBACKs are not those"),
    ("acknowledges twice", lambda number, ack: [ack] * (1 + (number == 5)), "PUBACKs"),
    ("stops acknowledging", lambda number, ack: [ack] if number < 5 else [], " messages were not acknowledged"),
    ("acknowledges nothing", lambda number, ack: [], " messages were not acknowledged"),
]


@pytest.mark.parametrize(("fault", "said"), cases(ACK_FAULTS))
def test_a_server_that_does_not_acknowledge_what_was_sent_gets_no_number(fault: Fault, said: str) -> None:
    with SmallServer(ack=fault) as server:
        outcome = perform(order(server.port))
    assert said in outcome.error


def test_a_server_that_is_not_there_is_a_failed_run() -> None:
    with SmallServer() as server:
        port = server.port
    assert "ConnectionRefusedError" in perform(order(port)).error


def test_idle_connections_are_weighed() -> None:
    with SmallServer() as server:
        outcome = perform(order(server.port, publishers=20, kind=scenarios.IDLE))
    assert (outcome.error, outcome.checked) == ("", 20)


def test_percentiles_weigh_a_batch_by_its_messages() -> None:
    latencies = [(0.003, 1), (0.001, 98), (0.002, 1)]
    assert percentile(latencies, 0.5) == pytest.approx(1000)
    assert percentile(latencies, 0.99) == pytest.approx(2000)
    assert percentile(latencies, 1.0) == pytest.approx(3000)
    assert percentile([], 0.5) == 0.0
