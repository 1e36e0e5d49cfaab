"""The memory that all native connections of a service use together, within two bounds: *unfinished* frames (incomplete
or not carried out), and *untaken* replies.

Each connection also has a small reserve that counts for neither, so that peers with small requests are served whatever
others hold. Connections that need more wait in their order. One connection at a time may exceed the bound for
unfinished frames, because otherwise none would ever be complete; replies leave by themselves. Pure.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

RESERVE_BYTES_MIN: Final = 16 * 1024
RESERVE_BYTES_MAX: Final = 256 * 1024
RESERVES_SHARE: Final = 4
"""The reserves of all connections together are no more than this part of the bound, as long as each has the least."""
PENDING_MAX: Final = 2_000_000
PENDING_RESERVE: Final = 1000
"""Requests that wait for their reply: of all connections together, and of one that may have more than its share."""
HELD_BYTES_MAX: Final = 256 * 1024 * 1024

_log = logging.getLogger(__name__)

Go = Callable[[], None]


class Pool:
    """Bytes of one kind beyond the reserves. ``what`` and ``then``: what the log calls them, and what it says happens
    at the bound.

    Attributes:
        most: the bound.
        used: the bytes.
    """

    def __init__(self, most: int, what: str, then: str) -> None:
        self.most = most
        self.used = 0
        self._told = f"{what} of all connections reach held_bytes_max: %d of %d bytes; {then}"
        self._is_told = False
        self._waiting: deque[tuple[object, Go]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached."""
        return self.used >= self.most

    @property
    def waiting(self) -> int:
        """The number of connections that wait for room."""
        return len(self._waiting)

    def change(self, more: int) -> None:
        """A connection holds ``more`` bytes, or less. Lets those go on for which there is room then."""
        self.used += more
        if more > 0 and self.is_full and not self._is_told:
            self._is_told = True
            _log.warning(self._told, self.used, self.most)
        elif more < 0:
            if self._is_told and self.used < self.most // 2:
                self._is_told = False
            self.serve()

    def wait(self, who: object, go: Go) -> None:
        """Calls ``go``, once, when it is this connection's turn; it must be gone from the queue until then."""
        self._waiting.append((who, go))

    def leave(self, who: object) -> None:
        """The connection waits for nothing any more."""
        if self._waiting:
            self._waiting = deque([one for one in self._waiting if one[0] is not who])

    def serve(self) -> None:
        """Lets those that wait go on."""
        raise NotImplementedError


class Untaken(Pool):
    """Replies that peers have not taken. A connection whose turn it is takes one request."""

    def __init__(self, most: int) -> None:
        super().__init__(most, "replies not taken", "further requests wait until there is room")
        self._is_serving = False

    def serve(self) -> None:
        """One after the other: each adds to what is used before the next one's turn."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting and not self.is_full:
                self._waiting.popleft()[1]()
        finally:
            self._is_serving = False


class Unfinished(Pool):
    """Parts of frames. A connection whose turn it is reads on; it is *exempt* from the bound if no other one is."""

    def __init__(self, most: int) -> None:
        super().__init__(most, "incomplete frames", "they are read one after the other until there is room")
        self.exempt: object | None = None

    def fits(self, more: int) -> bool:
        """Whether there is room for ``more`` bytes."""
        return more <= 0 or self.used + more <= self.most

    def serve(self) -> None:
        """One that is exempt, and one more where there is room: it calls this again when it has taken its room."""
        if self._waiting and self.exempt is None:
            self.exempt, go = self._waiting.popleft()
            go()
        if self._waiting and not self.is_full:
            self._waiting.popleft()[1]()

    def leave(self, who: object) -> None:
        """Its frame is complete, or it is gone."""
        super().leave(who)
        if self.exempt is who:
            self.exempt = None
            self.serve()


class NativeRoom:
    """The room of all native connections of one service.

    Args:
        held_bytes_max: the bound of each of the two pools.

    Attributes:
        reserve_bytes: what each connection may hold of each kind, whatever others hold.
        pending: requests of all connections that wait for their reply.
    """

    def __init__(self, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self.unfinished = Unfinished(held_bytes_max)
        self.untaken = Untaken(held_bytes_max)
        self.reserve_bytes = RESERVE_BYTES_MAX
        self.pending = 0
        self._most = held_bytes_max

    def share_among(self, connections: int) -> None:
        """Sets the number of connections."""
        share = self._most // (RESERVES_SHARE * max(1, connections))
        self.reserve_bytes = max(RESERVE_BYTES_MIN, min(RESERVE_BYTES_MAX, share))

    def figures(self, prefix: str) -> Mapping[str, float]:
        """Gauges by metric name, with the prefix of the service."""
        return {
            f"{prefix}_unfinished_bytes": self.unfinished.used,
            f"{prefix}_untaken_bytes": self.untaken.used,
            f"{prefix}_waiting_connections": self.unfinished.waiting + self.untaken.waiting,
        }
