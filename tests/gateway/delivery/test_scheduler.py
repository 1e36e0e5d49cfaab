"""What is done in one flush, in which order, and what is left to the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from making import BROKER, arrival, subscribed

from gateway.delivery.scheduler import LOOK_BYTES, LOOKS_MAX, LOOKS_PER_TURN, DeliveryScheduler
from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session


class World:
    """Feeds and sessions, and what a ``DeliveryScheduler`` has done with them. Everything costs ``looks``."""

    def __init__(self) -> None:
        self.due = DeliveryScheduler(self.pump, self.pull, self.wake)
        self.done: list[str] = []
        self.looks = 0
        self.lags: dict[Session, int] = {}
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def pump(self, session: Session) -> None:
        self.done.append(session.client_id)
        self.look(session)
        if self.lags.get(session, 0):
            self.lags[session] -= 1
            self.due.add(session)

    def pull(self, feed: Feed[Cursor]) -> None:
        feed.is_pulling = True
        self.done.append(feed.filter)
        self.look(feed.readers()[0].session)

    def look(self, session: Session) -> None:
        for _ in range(self.looks):
            self.due.look(session)

    def flush(self) -> list[str]:
        self.done = []
        self.due.take()
        return self.done

    def flushes(self) -> Iterator[list[str]]:
        while self.due:
            yield self.flush()


@pytest.fixture
def world() -> World:
    return World()


def feeds_of(client_id: str, count: int) -> list[Feed[Cursor]]:
    """The feeds of one session's filters, which it alone reads."""
    session = Session(client_id, 10)
    cursors = [subscribed(session, f"{client_id}/{number}") for number in range(count)]
    for cursor in cursors:
        attach(cursor)
    return [cursor.feed for cursor in cursors]


def attach(cursor: Cursor) -> None:
    cursor.feed.members.add(cursor)
    cursor.feed.attach(cursor)
    cursor.feed.head = 0


def test_what_is_due_is_done_once(world: World) -> None:
    session = Session("c", 10)
    [feed] = feeds_of("alone", 1)
    world.due.add(session)
    world.due.add(session)
    world.due.add_feed(feed)
    assert world.woken == 3
    assert bool(world.due)
    assert sorted(world.flush()) == ["alone/0", "c"]
    assert not world.due
    assert world.flush() == []


def test_feeds_that_cost_nothing_go_on_at_once_whatever_else_is_due(world: World) -> None:
    world.looks = LOOKS_MAX // 4
    for feed in feeds_of("many", 20):
        world.due.add_feed(feed)
    for number in range(50):
        world.due.add_feed(feeds_of(f"one-{number}", 1)[0])
    assert world.flush() == [*[f"one-{number}/0" for number in range(50)], *[f"many/{number}" for number in range(2)]]


def test_who_waits_for_a_turn_has_one_whatever_the_others_cost(world: World) -> None:
    world.looks = LOOKS_MAX // 4
    session = Session("lags", 10)
    for _ in range(3):
        world.due.add(session)
        for number in range(50):
            world.due.add_feed(feeds_of(f"one-{number}", 1)[0])
        assert world.flush()[50:] == ["lags"]


def test_sessions_have_their_turns_however_many_filters_one_of_them_has(world: World) -> None:
    world.looks = LOOKS_PER_TURN
    for feed in feeds_of("many", 100):
        world.due.add_feed(feed)
    for feed in feeds_of("two", 2):
        world.due.add_feed(feed)
    pulls = [done for flush in world.flushes() for done in flush if "/" in done]
    assert pulls[:4] == ["many/0", "two/0", "many/1", "two/1"]
    assert pulls[4:] == [f"many/{number}" for number in range(2, 100)]  # none is left out, and none comes twice


def test_a_flush_ends_when_enough_was_looked_at_and_the_rest_comes_first_in_the_next(world: World) -> None:
    world.looks = LOOKS_MAX // 2
    sessions = [Session(f"{number}", 10) for number in range(5)]
    for session in sessions:
        world.due.add(session)
    world.lags = {sessions[0]: 1}
    assert list(world.flushes()) == [["0", "1"], ["2", "3"], ["4", "0"]]


def test_a_large_message_counts_as_several_looks(world: World) -> None:
    session, large = Session("c", 10), arrival(payload=bytes(LOOK_BYTES * (LOOKS_MAX // 2)))
    world.due.looked_at(session, [arrival(payload=b"x"), large, large], 2)
    assert world.due.has_looks
    world.due.looked_at(session, [large], 1)
    assert not world.due.has_looks


def test_a_feed_waits_behind_those_that_it_has_left_behind(world: World) -> None:
    feed = Feed[Cursor](BROKER, "t/#")
    feed.head = 0
    cursors = [Cursor(Session(name, 10), subscribed(Session(name, 10), "t/#").subscription, feed) for name in "ab"]
    for cursor in cursors:
        feed.members.add(cursor)
        feed.attach(cursor)
    feed.lagging = 1
    world.due.add(cursors[0].session)
    world.due.add_feed(feed)
    assert world.flush() == ["a", "t/#"]


def test_a_feed_that_nobody_waits_for_any_more_is_not_pulled(world: World) -> None:
    [feed] = feeds_of("gone", 1)
    world.due.add_feed(feed)
    feed.detach(feed.readers()[0])
    assert world.flush() == []


def test_a_session_without_a_connection_is_forgotten_with_all_that_is_due_for_it(world: World) -> None:
    feeds = feeds_of("gone", 2)
    session = feeds[0].readers()[0].session
    world.due.add_feed(feeds[0])
    world.due.forget(session)
    assert not world.due


def test_only_whose_messages_are_looked_at_one_by_one_waits_with_an_answer(world: World) -> None:
    [alone] = feeds_of("alone", 1)
    one_of_two, _ = feeds_of("two", 2)
    assert not world.due.must_wait(one_of_two)
    world.looks = LOOKS_MAX
    world.look(Session("other", 10))
    assert world.due.must_wait(one_of_two)
    assert not world.due.must_wait(alone)
