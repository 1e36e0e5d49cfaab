"""The windows of all feeds together: pulled messages that lagging readers may still need.

Each feed bounds its own window (``gateway/messages/feed.py``). But a session may have a thousand filters, each with a
window: two clients could make a gateway hold hundreds of megabytes. Beyond the bound the window that has changed least
lately is dropped; its lagging readers read from the log. Pure.
"""

from __future__ import annotations

from typing import Final, Generic

from gateway.messages.feed import Feed, Reader

WINDOWS_MAX: Final = 64
"""Number of full windows at a time, or more that are not full."""


class Windows(Generic[Reader]):
    """Windows of one gateway. ``bytes_max``: of one window."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Feed[Reader], int] = {}  # the one that has changed last is the last
        self.bytes = 0

    def trim(self, feed: Feed[Reader]) -> None:
        """To be called when a feed has got more, or fewer readers lag there."""
        feed.trim(self._bytes_max)
        self._note(feed)
        while self.bytes > WINDOWS_MAX * self._bytes_max and len(self._held) > 1:
            oldest = next(iter(self._held))
            oldest.clear()
            self._note(oldest)

    def _note(self, feed: Feed[Reader]) -> None:
        self.bytes += feed.window_bytes - self._held.pop(feed, 0)
        if feed.window_bytes:
            self._held[feed] = feed.window_bytes
