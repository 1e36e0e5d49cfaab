"""What the windows of all feeds hold together."""

from __future__ import annotations

from making import BROKER, arrival

from gateway.messages.feed import Feed
from gateway.messages.windows import WINDOWS_MAX, Windows
from gateway.sessions.session import Cursor

BYTES_MAX = 10_000


def extended(windows: Windows[Cursor], feed: Feed[Cursor]) -> None:
    """It gets a message that fills a window, and somebody lags."""
    feed.lagging = 1
    feed.extend([arrival(feed.head, payload=bytes(BYTES_MAX - 600))], feed.head + 1)
    windows.trim(feed)


def feeds(count: int) -> list[Feed[Cursor]]:
    made: list[Feed[Cursor]] = [Feed(BROKER, f"a/{number}") for number in range(count)]
    for feed in made:
        feed.begin_at(0)
    return made


def test_beyond_the_bound_the_windows_go_that_have_changed_least_lately() -> None:
    windows: Windows[Cursor] = Windows(BYTES_MAX)
    every = feeds(WINDOWS_MAX)
    for feed in every:
        extended(windows, feed)
    assert all(feed.window for feed in every)
    windows.trim(every[0])
    [more] = feeds(1)
    extended(windows, more)
    assert [number for number, feed in enumerate(every) if not feed.window] == [1]
    assert more.window
    assert windows.bytes == sum(feed.window_bytes for feed in [*every, more]) == WINDOWS_MAX * BYTES_MAX


def test_one_window_is_kept_however_large_its_messages_are() -> None:
    windows: Windows[Cursor] = Windows(1)
    [feed] = feeds(1)
    feed.lagging = 1
    feed.extend([arrival(0, payload=bytes(100_000))], 1)
    windows.trim(feed)
    assert windows.bytes == feed.window_bytes


def test_what_nobody_needs_any_more_counts_no_more() -> None:
    windows: Windows[Cursor] = Windows(BYTES_MAX)
    [feed] = feeds(1)
    extended(windows, feed)
    assert windows.bytes == BYTES_MAX
    feed.lagging = 0
    windows.trim(feed)
    assert (windows.bytes, feed.window) == (0, None)
