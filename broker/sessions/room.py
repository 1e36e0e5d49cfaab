"""The rest of ``sessions_bytes_max`` while requests are judged, before any of them is stored.

Only growth is refused. A session that shrinks, ends or keeps its size is saved beyond the limit too, so no session is
stuck there. Sessions that were saved under a larger limit stay.
"""

from __future__ import annotations

from broker.sessions.fold import Sessions, will_bytes
from penstock.protocol.requests.sessions import SessionSave

_Sizes = tuple[int, int, int]
"""Bytes of will, terms and flow."""


class SessionRoom:
    """The room for what is kept of sessions, during one request."""

    def __init__(self, sessions: Sessions, bytes_max: int) -> None:
        self._sessions = sessions
        self._bytes_max = bytes_max
        self._bytes = sessions.bytes
        self._sizes: dict[str, _Sizes] = {}  # of sessions that the request changes

    def holds_opened(self, client: str, will: bytes, is_new: bool) -> bool:
        """Whether a session may have this will from now on. ``is_new``: nothing of what was there stays."""
        _, terms, flow = before = self._sizes_of(client)
        return self._holds(client, before, (will_bytes(will), 0, 0) if is_new else (will_bytes(will), terms, flow))

    def holds_saved(self, save: SessionSave) -> bool:
        """Whether a save may be kept, beside those that were before it; what it leaves empty stays."""
        will, terms, flow = before = self._sizes_of(save.client)
        return self._holds(
            save.client,
            before,
            (will_bytes(save.will) if save.will else will, len(save.terms) or terms, len(save.flow) or flow),
        )

    def _sizes_of(self, client: str) -> _Sizes:
        sizes = self._sizes.get(client)
        if sizes is not None:
            return sizes
        entry = self._sessions.get(client)
        return (0, 0, 0) if entry is None else entry.sizes

    def _holds(self, client: str, before: _Sizes, after: _Sizes) -> bool:
        more = sum(after) - sum(before)
        if more > 0 and self._bytes + more > self._bytes_max:
            return False
        self._sizes[client] = after
        self._bytes += more
        return True
