"""The books of one light queue."""

from __future__ import annotations

from making import BROKER, arrival, subscribed

from gateway.messages.feed import Feed
from gateway.sessions.session import Session


def feed_with(*offsets: int) -> Feed:
    feed = Feed(BROKER, "a/#")
    feed.begin_at(offsets[0])
    feed.extend([arrival(offset) for offset in offsets], offsets[-1] + 1)
    return feed


def test_it_wants_to_read_on_only_while_somebody_is_at_the_head() -> None:
    feed = feed_with(1, 2)
    assert not feed.wants_pull()
    feed.attached.add(subscribed(Session("c", 1), "a/#"))
    assert feed.wants_pull()
    feed.lagging = 1
    assert not feed.wants_pull()


def test_it_wants_nothing_while_it_pulls_or_is_not_open() -> None:
    feed = feed_with(1, 2)
    feed.attached.add(subscribed(Session("c", 1), "a/#"))
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
    feed.attached.add(subscribed(Session("c", 1), "a/#"))
    feed.begin_at(100)
    assert feed.head == 3
