"""Whose turn it is to be answered by a broker."""

from __future__ import annotations

import sys
from functools import partial

import pytest
from making import subscribed
from rig import HandClock

from gateway.brokers import Broker, Brokers
from gateway.delivery import lookups as module
from gateway.delivery.lookups import WORK_MAX, LookupTurns
from gateway.net.rounds import Rounds, Stage
from gateway.sessions.session import Cursor, Session
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.groups import FetchOffsets
from penstock.protocol.requests.request import Done, Request, Result

THIRD = WORK_MAX // 3


class Peer:
    """A broker that answers when the test says so, or at once."""

    def __init__(self) -> None:
        self.answers_at_once = False
        self.asked: list[str] = []
        self._waiting: list[OnResult] = []

    def link(self, address: str) -> Link:
        return self

    def give_up(self, address: str) -> None:
        """Nothing is lost here."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        assert isinstance(request, FetchOffsets)
        self.asked.append(request.group)
        if self.answers_at_once:
            on_result(Done())
        else:
            self._waiting.append(on_result)

    def flush(self) -> None:
        """All that was submitted is here."""

    def answer(self) -> None:
        """Answers what was asked so far."""
        waiting, self._waiting = self._waiting, []
        for on_result in waiting:
            on_result(Done())


class End(Stage):
    """The end of a round, which comes to the turns as often as there is something to do."""

    def __init__(self, turns: LookupTurns[list[str]]) -> None:
        self._turns = turns

    def flush(self) -> None:
        self._turns.take()


class Rig:
    """Cursors that are held for so many requests each, one behind the other."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.broker = self.a_broker(self.peer)
        self.current: dict[Cursor, list[str]] = {}
        self.wakes = 0
        self.told: list[str] = []
        self.rounds = Rounds(HandClock(), self.wake)
        self.turns = LookupTurns(self.current, self.pump, self.rounds, self.fail)
        self.rounds.ends_with(End(self.turns))
        self.failed: list[Cursor] = []
        self.error: Exception | None = None
        self.work = THIRD
        self.more = 0
        self.goes_on = True

    @staticmethod
    def a_broker(peer: Peer) -> Broker:
        return Broker("broker:1", peer, Brokers(peer, [], lambda: None))

    def wake(self) -> None:
        self.wakes += 1

    def begin(self, session: Session, *requests: str, broker: Broker | None = None) -> Cursor:
        cursor = subscribed(session, "a", broker=broker or self.broker)
        self.current[cursor] = list(requests)
        self.pump(cursor)
        return cursor

    def pump(self, cursor: Cursor) -> None:
        wanted = self.current[cursor]
        if wanted:
            request = FetchOffsets(wanted.pop(0), ())
            self.turns.ask(cursor, wanted, request, self.work, partial(self.answered, cursor, request.group))

    def fail(self, cursor: Cursor) -> None:
        assert sys.exc_info()[1] is self.error
        self.failed.append(cursor)

    def answered(self, cursor: Cursor, request: str, result: Result) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(request)
        self.turns.spent(cursor, self.more)
        if self.goes_on:
            self.turns.ready(cursor)

    def take(self) -> list[str]:
        """What a round asks."""
        self.peer.asked = []
        self.rounds.begin()
        self.rounds.finish()
        return self.peer.asked


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_so_much_work_is_under_way_from_a_broker_and_the_rest_waits(rig: Rig) -> None:
    for number in range(9):
        rig.begin(Session("c", 1), str(number))
    assert rig.take() == ["0", "1", "2", "3"], "as long as something is left, one more request goes out"
    assert rig.take() == []
    rig.peer.answer()
    assert rig.take() == ["4", "5", "6", "7"]
    assert rig.told == ["0", "1", "2", "3"]


def test_what_takes_more_than_may_be_under_way_goes_alone(rig: Rig) -> None:
    rig.work = 10 * WORK_MAX
    for number in range(2):
        rig.begin(Session("c", 1), str(number))
    assert rig.take() == ["0"]
    rig.peer.answer()
    assert rig.take() == ["1"]


def test_sessions_come_in_turn_and_of_each_its_requests_in_their_order(rig: Rig) -> None:
    greedy, modest = Session("greedy", 1), Session("modest", 1)
    for number in range(6):
        rig.begin(greedy, f"greedy {number}")
    rig.begin(modest, "modest 0")
    rig.begin(modest, "modest 1")
    assert rig.take() == ["greedy 0", "modest 0", "greedy 1", "modest 1"]
    rig.peer.answer()
    assert rig.take() == ["greedy 2", "greedy 3", "greedy 4", "greedy 5"]


def test_each_broker_has_turns_of_its_own(rig: Rig) -> None:
    slow = Peer()
    for number in range(5):
        rig.begin(Session("c", 1), str(number), broker=rig.a_broker(slow) if number == 0 else None)
    assert rig.take() == ["1", "2", "3", "4"]
    assert slow.asked == ["0"]


def test_what_is_answered_at_once_asks_for_more_in_the_same_round_while_there_is_little_to_look_at(rig: Rig) -> None:
    rig.peer.answers_at_once = True
    rig.begin(Session("c", 1), *"abcdefgh")
    assert rig.take() == list("abcd")
    rig.wakes = 0
    assert rig.take() == list("efgh")
    assert rig.take() == []


def test_work_that_shows_only_in_an_answer_counts_too(rig: Rig) -> None:
    rig.peer.answers_at_once = True
    rig.more = WORK_MAX
    rig.begin(Session("c", 1), *"abcdefgh")
    assert rig.take() == ["a"]
    assert rig.take() == ["b"]


def test_it_wakes_as_long_as_something_may_be_asked(rig: Rig) -> None:
    rig.peer.answers_at_once = True
    rig.goes_on = False
    for number in range(5):
        rig.begin(Session("c", 1), str(number))
    rig.wakes = 0
    assert len(rig.take()) == 4
    assert rig.wakes, "there is more, and nothing else would bring a flush"
    rig.wakes = 0
    assert len(rig.take()) == 1
    assert not rig.wakes


def test_an_answer_wakes_whoever_waits_for_its_turn_also_when_nobody_is_told_of_it(rig: Rig) -> None:
    rig.work = WORK_MAX
    gone = rig.begin(Session("gone", 1), "gone")
    rig.begin(Session("c", 1), "a")
    assert rig.take() == ["gone"]
    del rig.current[gone]
    rig.wakes = 0
    rig.peer.answer()
    assert rig.wakes
    assert rig.take() == ["a"]


def test_for_what_is_over_nothing_is_asked_and_no_answer_is_told(rig: Rig) -> None:
    session = Session("c", 1)
    cursors = [rig.begin(session, str(number), "more") for number in range(8)]
    rig.take()
    for cursor in cursors[2:6]:
        del rig.current[cursor]
    rig.current[cursors[6]] = []  # it was begun anew
    rig.peer.answer()
    assert rig.told == ["0", "1"]
    assert rig.take() == ["7", "more", "more"]


def test_who_was_not_answered_goes_on_with_the_next_retry(rig: Rig) -> None:
    cursor, over = rig.begin(Session("c", 1), "a", "b"), rig.begin(Session("d", 1), "c", "d")
    rig.take()
    rig.turns.failed(cursor)
    rig.turns.failed(over)
    del rig.current[over]
    assert rig.take() == []
    rig.turns.retry()
    assert rig.take() == ["b"]
    rig.turns.retry()
    assert rig.take() == []


@pytest.mark.parametrize("at_once", [False, True])
def test_an_error_that_an_answer_brings_ends_one_client_and_others_go_on(rig: Rig, at_once: bool) -> None:
    rig.error, rig.peer.answers_at_once = RuntimeError("nobody has foreseen it"), at_once
    cursors = [rig.begin(Session("c", 1), str(number)) for number in range(6)]
    for _ in range(2):
        rig.take()
        rig.peer.answer()
    assert rig.failed == cursors
    rig.error = None
    rig.begin(Session("c", 1), "next")
    assert rig.take() == ["next"], "what was answered so is not under way any more"


@pytest.mark.parametrize("work_max", [1, 100])
def test_all_get_their_answers_however_little_may_be_under_way(
    rig: Rig, work_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORK_MAX", work_max)
    for number in range(5):
        rig.begin(Session("c", 1), *[f"{number}{letter}" for letter in "abc"])
    for _ in range(100):
        rig.take()
        rig.peer.answer()
    assert sorted(rig.told) == [f"{number}{letter}" for number in range(5) for letter in "abc"]
