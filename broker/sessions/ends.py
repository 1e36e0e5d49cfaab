"""The time for which sessions have been without their clients, and their ends.

A session is stored with the wall-clock time at which its client went. After the broker's start the monotonic clock
counts: a wall clock that is set forward ends no session, and one that is set back keeps none alive. The time before a
start counts as soon as ages do (``broker/store_clock.py``). A client whose owner has just died is gone too, though no
record says so yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from broker.kernel.deadlines import Deadlines
from broker.sessions.fold import Sessions
from penstock.protocol.requests.sessions import NEVER_ENDS

LEAP_S: Final = 60.0
"""Seconds: ages that go further forward than the monotonic clock have waited for the clock since the start."""


class SessionEnds:
    """The absences of the sessions whose home is this broker. ``now`` is monotonic, in seconds."""

    def __init__(self, sessions: Sessions, now: float, age_ms: int) -> None:
        """``age_ms``: until when the absences that are stored have gone on, as is known yet (``judge``)."""
        self._sessions = sessions
        self._before = dict(sessions.gone())  # client -> when it went, of those that have been gone since before
        self._gone = {client: now - max(0, age_ms - gone_ms) / 1000 for client, gone_ms in self._before.items()}
        self._judged, self._age_ms = now, age_ms
        self._ends: Deadlines[str] = Deadlines()
        for client in self._gone:
            self.watch(client)

    def __len__(self) -> int:
        return len(self._ends)

    def went(self, client: str, now: float) -> None:
        """A session has no client any more, unless that is known already."""
        self._gone.setdefault(client, now)

    def back(self, client: str) -> None:
        """The client is there, or its session is over."""
        self._gone.pop(client, None)
        self._before.pop(client, None)
        self._ends.cancel(client)

    def judge(self, now: float, age_ms: int) -> None:
        """It is that time by the ages. Once they have waited for a clock that was far ahead at the start, the time that
        the machine was off counts as absence too."""
        leap_s = (age_ms - self._age_ms) / 1000 - (now - self._judged)
        self._judged, self._age_ms = now, age_ms
        if leap_s > LEAP_S and self._before:
            for client, gone_ms in self._before.items():
                self._gone[client] = min(self._gone[client], now - max(0, age_ms - gone_ms) / 1000)
                self.watch(client)
            self._before = {}

    def absence_s(self, client: str, now: float) -> float:
        """The time for which the client has been gone, 0 if it is not."""
        return now - self._gone.get(client, now)

    def absent_since_ms(self, client: str, now: float, now_ms: int) -> int:
        """The same as a time by the wall clock, as it goes just now; never 0."""
        return max(now_ms - int(self.absence_s(client, now) * 1000), 1)

    def is_over(self, client: str, now: float) -> bool:
        """Whether the client came back too late, or not at all."""
        return self._end_of(client) <= now

    def _end_of(self, client: str) -> float:
        gone, entry = self._gone.get(client), self._sessions.get(client)
        if gone is None or entry is None or entry.expiry_s == NEVER_ENDS:
            return math.inf
        return gone + entry.expiry_s

    def watch(self, client: str) -> None:
        """The session has no owner any more; its end is reported when its time has passed."""
        self._ends.set(client, self._end_of(client))

    def due(self, now: float) -> Iterable[str]:
        """Clients whose sessions may be over. One is given until the next is asked for."""
        return self._ends.due(now)
