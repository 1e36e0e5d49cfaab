"""Which client id has which session: one session per id, at most one connection per session.

``enter`` finds, makes or replaces the session of a connecting client (MQTT-3.1.2-4, -5, -6); the caller has closed the
connection that had it before (MQTT-3.1.4-3). A session without a connection ends when its expiry has passed
(MQTT-4.1.0-2); ``take_ended`` says which. Pure: time and chance are arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.deadlines import Deadlines
from gateway.session import NEVER_ENDS, Session
from penstock.world import Rng


class Entry(NamedTuple):
    """What ``enter`` found: the session to use, whether it existed before, and the one that it replaces."""

    session: Session
    present: bool
    ended: Session | None


class SessionTable:
    """All sessions of this gateway, by client id."""

    def __init__(self, sessions_max: int, window: int) -> None:
        self._sessions: dict[str, Session] = {}
        self._ends: Deadlines[Session] = Deadlines()
        self._sessions_max = sessions_max
        self._window = window

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def get(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def new_client_id(self, rng: Rng) -> str:
        """An id that no session has (MQTT-3.1.3-7, 3.2.2-16)."""
        while True:
            client_id = f"auto-{rng.getrandbits(64):016x}"
            if client_id not in self._sessions:
                return client_id

    def has_room(self, client_id: str) -> bool:
        return client_id in self._sessions or len(self._sessions) < self._sessions_max

    def enter(self, client_id: str, clean_start: bool, now: float) -> Entry:
        """The session for a connection that is being accepted."""
        known = self._sessions.get(client_id)
        if known is not None and not clean_start and not self._has_ended(known, now):
            known.ends_at = -1.0
            return Entry(known, True, None)
        session = self._sessions[client_id] = Session(client_id, self._window)
        return Entry(session, False, known)

    def leave(self, session: Session, now: float) -> bool:
        """Its connection is gone. True if the session ends with it."""
        if session.expiry_s == 0:
            return self.remove(session)
        if session.expiry_s != NEVER_ENDS:
            session.ends_at = now + session.expiry_s
            self._ends.add(session.ends_at, session)
        return False

    def remove(self, session: Session) -> bool:
        """Takes a session out, unless another one has its place already. Always True."""
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
        return True

    def take_ended(self, now: float) -> list[Session]:
        """Removes and returns the sessions whose expiry has passed."""
        due = self._ends.take(now)
        ended = []
        for session in due:
            if self._sessions.get(session.client_id) is session and self._has_ended(session, now):
                del self._sessions[session.client_id]
                ended.append(session)
        return ended

    @staticmethod
    def _has_ended(session: Session, now: float) -> bool:
        return session.device is None and 0 <= session.ends_at <= now
