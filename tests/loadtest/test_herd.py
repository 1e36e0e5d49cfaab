"""Durable sessions under load: all come back, and what waited for them is what they get."""

from __future__ import annotations

import pytest

from loadtest import generator, herd, scenarios, wires
from loadtest.packets import CONNACK_OK
from loadtest.run import perform
from tests.loadtest.keeping_server import KeepingServer, Kept
from tests.loadtest.test_paced import order

pytestmark = pytest.mark.endtoend


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "SETTLE_S", 0.0)
    monkeypatch.setattr(herd, "DRAIN_S", 0.3)
    monkeypatch.setattr(herd, "COMING", 3)


def test_all_sessions_come_back_several_times() -> None:
    with KeepingServer() as server:
        outcome = perform(order(server.port, kind=scenarios.RECONNECT, sessions=20))
    assert (outcome.error, outcome.messages, outcome.checked) == ("", 20, 20 * herd.TIMES)
    assert server.came_back == 20 * herd.TIMES
    assert outcome.figures["reconnect_s"] == outcome.seconds > 0


def test_a_server_that_has_forgotten_a_session_gets_no_number() -> None:
    with KeepingServer(present=CONNACK_OK) as server:
        outcome = perform(order(server.port, kind=scenarios.RECONNECT, sessions=3))
    assert "another CONNACK with session present than expected" in outcome.error


def test_messages_wait_and_are_fetched() -> None:
    with KeepingServer() as server:
        outcome = perform(order(server.port, kind=scenarios.BACKLOG, sessions=20, messages=100))
    assert (outcome.error, outcome.messages, outcome.checked) == ("", 100, 100)
    assert server.came_back == 20
    assert outcome.figures["most_bytes"] >= outcome.figures["with_bytes"] / 2 > 0
    assert outcome.figures["with_without"] == outcome.figures["with_bytes"] / outcome.figures["without_bytes"]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (lambda number, packet: [] if number == 7 else [packet], "timed out"),
        (lambda number, packet: [packet] * (1 + (number == 7)), "did not get the 5 messages"),
        (lambda number, packet: [packet[:-1] + b"x"] if number == 7 else [packet], "did not get the 5 messages"),
    ],
    ids=["loses one", "doubles one", "changes one"],
)
def test_a_server_that_kept_other_messages_gets_no_number(
    monkeypatch: pytest.MonkeyPatch, kept: Kept, said: str
) -> None:
    monkeypatch.setattr(wires, "TIMEOUT_S", 0.2)
    with KeepingServer(kept) as server:
        outcome = perform(order(server.port, kind=scenarios.BACKLOG, sessions=20, messages=100))
    assert said in outcome.error
