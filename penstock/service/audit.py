"""The audit log: who did what to what, from where, and whether it was allowed.

Each login, each refusal and each act of administration is an *entry*. Entries go to the log ``penstock.audit``, a
bounded number of lines a second; the others are only counted. No entry has a password, a token or a proof in it. Pure
but for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.access.policy import Identity
from penstock.service.buckets import Bucket

_LINES_PER_S: Final = 10.0
_LINES_AT_ONCE: Final = 100
_NAME_CHARACTERS_MAX: Final = 255

_log = logging.getLogger("penstock.audit")


class Entry(NamedTuple):
    """A login or request, and what was decided about it.

    Attributes:
        at_ms: wall-clock milliseconds since 1970.
        user, how: the identity of the peer (``policy.Identity``).
        address: the peer's address.
        act: the request's name, or ``Login``.
        name: the topic, group or login mechanism of the request; empty for the cluster.
        allowed: whether it was allowed.
        why: the cause of a refusal, for operators.
    """

    at_ms: int
    user: str
    how: str
    address: str
    act: str
    name: str
    allowed: bool
    why: str = ""


Keep = Callable[[Entry], None]


def _nowhere(entry: Entry) -> None:
    """Keeps no entry."""


class Audit:
    """The audit log of one server.

    Args:
        wall_ms: milliseconds since 1970.
        clock: seconds that never go back.
        keep: called with each entry that has a line in the log; services leave it out.

    Attributes:
        allowed, refused: how many acts of either kind there were.
    """

    def __init__(self, wall_ms: Callable[[], int], clock: Callable[[], float], keep: Keep = _nowhere) -> None:
        self._wall_ms = wall_ms
        self._clock = clock
        self._keep = keep
        self._lines = Bucket(_LINES_PER_S, 0.0, _LINES_AT_ONCE)
        self._untold = 0
        self.allowed = 0
        self.refused = 0

    def note(self, who: Identity, address: str, act: str, name: str, *, allowed: bool, why: str = "") -> None:
        """Counts an act and logs it. Beyond the bound of lines it is only counted; the next line says how many were."""
        if allowed:
            self.allowed += 1
        else:
            self.refused += 1
        if not self._lines.take(self._clock()):
            self._untold += 1
            return
        untold, self._untold = self._untold, 0
        name = name[:_NAME_CHARACTERS_MAX]
        self._keep(Entry(self._wall_ms(), who.user, who.how, address, act, name, allowed, why))
        _log.log(
            logging.INFO if allowed else logging.WARNING,
            "%s: %s %r by %s (%s) from %s%s%s",
            "allowed" if allowed else "refused",
            act,
            name,
            repr(who.user) if who.user else "nobody",
            who.how,
            address,
            f": {why}" if why else "",
            f"; {untold} more were not told" if untold else "",
        )
