"""When a subscription has come past what its filter passes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from gateway.brokers import Broker
from gateway.delivery.filter_progress import FilterProgress
from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from penstock.errors import TopicNotFound, Unavailable
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import Bounds, DescribeTopic, TopicDetail

pytestmark = pytest.mark.interpreted  # a compiled feed takes no other broker


class Asked:
    """A broker that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Request, Callable[[Result], None]]] = []

    def submit(self, request: Request, on_result: Callable[[Result], None]) -> None:
        self.asked.append((request, on_result))

    def answer(self, kind: type[Request], result: Result) -> None:
        [(request, on_result)] = self.asked
        assert type(request) is kind
        self.asked.clear()
        on_result(result)


class Told:
    """What goes first, all of it asked for."""

    waits = True

    def owed(self) -> None:
        return None


class Looking:
    """One cursor, at offset 5 of its light queue."""

    def __init__(self) -> None:
        self.broker = Asked()
        feed: Feed[Cursor] = Feed(cast(Broker, self.broker), "t/1")
        feed.queue = "~filter:t/1"
        self.cursor = Cursor(Session("c", 10), Subscription("t/1", 1), feed)
        self.cursor.next = 5
        self.passed: list[dict[str, int]] = []
        self.found: list[str] = []
        self.passing = FilterProgress(
            lambda filter: filter.partition("/")[0],
            lambda _, queues: self.found.extend(queues),
            lambda _, ends: self.passed.append(dict(ends)),
        )

    def look(self) -> None:
        self.passing.look(self.cursor)

    def mark(self, end: int, place: int) -> None:
        self.look()
        self.broker.answer(DescribeTopic, TopicDetail("t", 1, "disk", (Bounds("t:0", 0, end),)))
        self.broker.answer(QueryBounds, BoundsReply((Bounds("~filter:t/1", 0, place),)))


def test_a_cursor_at_the_end_of_its_queue_has_come_past_all_that_was_stored_before() -> None:
    one = Looking()
    one.mark(9, 5)
    assert one.passed == [{"t:0": 9}]
    assert len(one.passing) == 0


def test_a_cursor_that_lags_passes_its_mark_when_it_comes_there_however_much_there_is_by_then() -> None:
    one = Looking()
    one.mark(9, 7)
    one.look()
    assert (one.found, one.passed) == (["t:0"], [])
    one.cursor.next = 7
    one.look()
    assert one.passed == [{"t:0": 9}]
    assert one.broker.asked == []


def test_a_cursor_that_is_held_passes_nothing_until_it_goes_on() -> None:
    one = Looking()
    one.cursor.past = Told()
    one.mark(9, 5)
    one.look()
    assert one.passed == []
    one.cursor.past = None
    one.look()
    assert one.passed == [{"t:0": 9}]


def test_a_mark_in_a_queue_that_was_opened_anew_means_nothing() -> None:
    one = Looking()
    one.mark(9, 7)
    one.cursor.start, one.cursor.next = 1000, 8
    one.look()
    assert (one.passed, len(one.passing)) == ([], 0)


def test_what_a_broker_does_not_answer_is_asked_again_at_the_next_look() -> None:
    one = Looking()
    one.look()
    one.look()
    one.broker.answer(DescribeTopic, TopicNotFound("t"))
    one.look()
    one.broker.answer(DescribeTopic, TopicDetail("t", 1, "disk", (Bounds("t:0", 0, 9),)))
    one.broker.answer(QueryBounds, Unavailable("away"))
    one.mark(9, 5)
    assert one.passed == [{"t:0": 9}]


def test_a_cursor_that_is_over_or_has_not_begun_has_no_mark() -> None:
    one = Looking()
    one.look()
    one.passing.stop(one.cursor)
    one.broker.answer(DescribeTopic, TopicDetail("t", 1, "disk", ()))
    one.cursor.next = -1
    one.look()
    assert (one.broker.asked, one.passed) == ([], [])
