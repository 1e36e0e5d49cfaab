"""The audit log: who did what to what, from where, and whether it was allowed.

Each login, each refusal and each act of administration is an *entry*. Entries go to a *trail*, which a task stores in
the topic ``%AUDIT%`` (``audit_keeping.py``), and to the log ``penstock.audit``, a bounded number of lines a second. No
entry has a password, a token or a proof in it. Nothing here waits: at its bounds a trail counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from penstock.access.policy import Identity
from penstock.protocol.requests.messages import AUDITED_MAX, AuditEntry
from penstock.service.buckets import Bucket

KINDS_MAX: Final = 1_000
"""Maximum number of different acts that a trail holds, of those allowed and of those refused."""
OTHERS: Final = "others"
"""The act of an entry that stands for those above ``KINDS_MAX``."""
_LINES_PER_S: Final = 10.0
_LINES_AT_ONCE: Final = 100
_NAME_CHARACTERS_MAX: Final = 255
assert 2 * (KINDS_MAX + 1) <= AUDITED_MAX

_log = logging.getLogger("penstock.audit")


def _short(text: str) -> str:
    """A text for an entry; the end of one that is too long is a mark."""
    return text if len(text) <= _NAME_CHARACTERS_MAX else text[: _NAME_CHARACTERS_MAX - 1] + "…"


class Trail:
    """The entries of one server that are not stored yet. Equal acts are one entry with a count, so a client that
    repeats one act a thousand times a second takes the place of one. Refusals cannot push out acts that were allowed.

    Attributes:
        left_out: how many entries were only counted since the start: too many of them, or not taken by a broker.
    """

    def __init__(self) -> None:
        self._entries: dict[AuditEntry, AuditEntry] = {}  # by the same without its time and how often
        self._kinds = [0, 0]
        self.left_out = 0

    def add(self, entry: AuditEntry) -> None:
        """Adds one."""
        kind = entry._replace(at_ms=0, times=1)
        held = self._entries.get(kind)
        if held is None:
            if self._kinds[entry.allowed] >= KINDS_MAX and entry.act != OTHERS:
                self.left_out += entry.times
                others = AuditEntry(entry.at_ms, "", "", "", OTHERS, "", entry.allowed, "too many", times=entry.times)
                self.add(others)
                return
            self._kinds[entry.allowed] += 1
            self._entries[kind] = entry
        else:
            began_ms = min(held.at_ms, entry.at_ms)
            self._entries[kind] = held._replace(at_ms=began_ms, times=held.times + entry.times)

    def take(self) -> tuple[AuditEntry, ...]:
        """All entries, oldest first; the trail is empty then."""
        taken, self._entries, self._kinds = self._entries.values(), {}, [0, 0]
        return tuple(sorted(taken, key=lambda one: one.at_ms))

    def give_up(self, entries: Iterable[AuditEntry]) -> None:
        """Counts entries that no broker will ever take."""
        self.left_out += sum([one.times for one in entries])

    def put_back(self, entries: Iterable[AuditEntry]) -> None:
        """Puts entries back that could not be stored."""
        for entry in entries:
            self.add(entry)


class Audit:
    """The audit log of one server.

    Args:
        wall_ms: milliseconds since 1970.
        clock: seconds that never go back.

    Attributes:
        trail: the entries to store.
        allowed, refused: how many acts of either kind there were.
    """

    def __init__(self, wall_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._clock = clock
        self._lines = Bucket(_LINES_PER_S, 0.0, _LINES_AT_ONCE)
        self._untold = 0
        self.trail = Trail()
        self.allowed = 0
        self.refused = 0

    def keep(
        self, who: Identity, address: str, act: str, name: str, *, allowed: bool, why: str = "", client: str = ""
    ) -> None:
        """Keeps an act that is logged elsewhere. ``client``: of a device."""
        if allowed:
            self.allowed += 1
        else:
            self.refused += 1
        user, name, why, client = [_short(text) for text in (who.user, name, why, client)]
        self.trail.add(AuditEntry(self._wall_ms(), user, who.how, address, act, name, allowed, why, client))

    def note(
        self, who: Identity, address: str, act: str, name: str, *, allowed: bool, why: str = "", client: str = ""
    ) -> None:
        """Keeps an act, and logs it. Beyond the bound of lines it is not logged; the next line says how many were
        not."""
        self.keep(who, address, act, name, allowed=allowed, why=why, client=client)
        if not self._lines.take(self._clock()):
            self._untold += 1
            return
        untold, self._untold = self._untold, 0
        _log.log(
            logging.INFO if allowed else logging.WARNING,
            "%s: %s %r by %s (%s)%s from %s%s%s",
            "allowed" if allowed else "refused",
            act,
            _short(name),
            repr(who.user) if who.user else "nobody",
            who.how,
            f", client {_short(client)!r}," if client else "",
            address,
            f": {_short(why)}" if why else "",
            f"; {untold} more were not told" if untold else "",
        )
