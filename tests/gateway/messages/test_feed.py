"""The books of one light queue."""

from __future__ import annotations

from making import BROKER, arrival, subscribed
from rig import Gateway

from gateway.messages.feed import Feed
from gateway.sessions.session import Cursor, Session
from penstock.errors import Unavailable
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Result


def feed_with(*offsets: int) -> Feed:
    feed = Feed(BROKER, "a/#")
    feed.begin_at(offsets[0])
    feed.extend([arrival(offset) for offset in offsets], offsets[-1] + 1)
    return feed


def read_along(feed: Feed) -> Cursor:
    cursor = subscribed(Session("c", 1), "a/#")
    feed.members.add(cursor)
    feed.attach(cursor)
    return cursor


def test_members_read_along_from_when_they_are_attached_until_they_are_detached() -> None:
    feed = feed_with(1)
    absent = subscribed(Session("away", 1), "a/#")
    feed.members.add(absent)
    assert (feed.readers(), feed.sole_reader(), feed.reading) == ([], None, 0)
    first = read_along(feed)
    feed.attach(first)
    assert (feed.readers(), feed.sole_reader(), feed.reading) == ([first], first, 1)
    second = read_along(feed)
    assert (feed.readers(), feed.sole_reader(), feed.reading) == ([first, second], None, 2)
    assert not feed.detach(absent)
    assert feed.detach(first)
    assert not feed.detach(first)
    assert (feed.readers(), feed.sole_reader(), feed.reading) == ([second], second, 1)


def test_whoever_is_told_of_the_answer_to_a_pull_is_told_whose_it_is() -> None:
    gateway = Gateway()
    gateway.broker.refuses = {Pull: Unavailable("away")}
    feeds: list[Feed] = [Feed(gateway.brokers.known[0], filter) for filter in ("a", "b")]
    told: list[tuple[Feed, Result]] = []
    for at, feed in enumerate(feeds):
        feed.queue, feed.head = f"~filter:{feed.filter}", at
        gateway.rounds.begin()
        feed.pull(1000, 10, 5.0, lambda *answer: told.append(answer))
        assert feed.is_pulling
    gateway.round()
    assert gateway.broker.made(Pull) == [Pull("~filter:a", 0, 1000, 10, 5.0), Pull("~filter:b", 1, 1000, 10, 5.0)]
    assert [(feed, type(result)) for feed, result in told] == [(feed, Unavailable) for feed in feeds]


def test_it_wants_to_read_on_only_while_somebody_is_at_the_head() -> None:
    feed = feed_with(1, 2)
    assert not feed.wants_pull()
    read_along(feed)
    assert feed.wants_pull()
    feed.lagging = 1
    assert not feed.wants_pull()


def test_it_wants_nothing_while_it_pulls_or_is_not_open() -> None:
    feed = feed_with(1, 2)
    read_along(feed)
    feed.is_pulling = True
    assert not feed.wants_pull()
    feed.is_pulling, feed.head = False, -1
    assert not feed.wants_pull()


def test_the_window_gives_what_comes_from_an_offset_on() -> None:
    feed = feed_with(5, 6, 8, 9)
    assert [one.offset for one in feed.since(6) or ()] == [6, 8, 9]
    assert [one.offset for one in feed.since(7) or ()] == [8, 9]
    assert feed.since(4) is None


def test_nothing_is_kept_when_nobody_lags() -> None:
    feed = feed_with(5, 6)
    feed.trim(1 << 20)
    assert feed.since(5) is None


def test_what_is_kept_for_those_who_lag_is_bounded_and_the_newest() -> None:
    feed = feed_with(*range(100))
    feed.lagging = 1
    feed.trim(10_000)
    kept = feed.since(99)
    assert kept is not None
    assert feed.window is not None
    assert 0 < len(feed.window) < 20
    assert feed.window[-1].offset == 99


def test_a_queue_without_readers_begins_where_the_next_reader_is() -> None:
    feed = feed_with(5, 6)
    feed.begin_at(3)
    assert feed.head == 3
    read_along(feed)
    feed.begin_at(100)
    assert feed.head == 3
