"""Fold of MQTT sessions: the owner of each client's session, its epoch, and what the owner saved of it.

An epoch is the log position of the record that gave the session to its owner, plus one. It only grows, also for a
client whose session ended and begins anew. So a late request of an earlier owner is known by its epoch. The epoch in
which a session began is its *generation*. Its filters are held open under ``holder(generation)``, without a lease: they
close with the session.

What owners save is kept in memory, and counted whenever it changes; the service limits how many bytes it has in all.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.filters.fold import LASTING, OwnerEnded
from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.requests.sessions import CONNECTED, LOST, NO_WILL, RELEASED, SessionSave

TOPIC: Final = "%sys%sessions"
OPEN: Final = "open"
SAVE: Final = "save"
END: Final = "end"
_HOLDER: Final = re.compile(LASTING + r"session/([0-9]{1,19})(?:@(.+))?")
_FIELDS: Final = (
    "epoch",
    "expiry_s",
    "flow",
    "gone_ms",
    "generation",
    "owner",
    "state",
    "terms",
    "user",
    "will",
    "doubtful_ms",
)
"""What an entry has, in the order of its row in a snapshot: new ones come last."""
_NOBODY: Final[Mapping[str, None]] = MappingProxyType({})


class Entry:
    """One client's session. ``gone_ms``: when its connection ended, 0 while it has one. ``user``: whose it is.
    ``doubtful_ms``: when an owner was last known to have lost it without a word, 0: none has."""

    __slots__ = _FIELDS

    def __init__(self, owner: str, epoch: int, generation: int, expiry_s: int, will: bytes, user: str = "") -> None:
        self.owner = owner
        self.epoch = epoch
        self.generation = generation
        self.state = CONNECTED
        self.gone_ms = 0
        self.expiry_s = expiry_s
        self.will = will
        self.terms = b""
        self.user = user
        self.flow = b""
        self.doubtful_ms = 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of will, terms and flow."""
        return will_bytes(self.will), len(self.terms), len(self.flow)

    @property
    def size(self) -> int:
        """All of them together."""
        return sum(self.sizes)


class SessionEnded(NamedTuple):
    """A client's session is over."""

    client: str
    generation: int


class Sessions:
    """All sessions whose home is this broker.

    Attributes:
        bytes: size of what is kept of all of them.
    """

    KEY: Final = "sessions"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.bytes = 0
        self._entries: Table[Entry] = Table()
        self._of: dict[str, dict[str, None]] = {}  # owner -> clients whose session it has
        self._live: dict[int, str] = {}  # generation -> client, oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, client: str) -> Entry | None:
        """The session of a client if it has one."""
        return self._entries.get(client)

    def of(self, owner: str) -> list[str]:
        """The clients whose sessions an owner has."""
        return list(self._of.get(owner, _NOBODY))

    def count_of(self, owner: str) -> int:
        """The number of an owner's sessions."""
        return len(self._of.get(owner, _NOBODY))

    def is_as(self, save: SessionSave) -> bool:
        """Whether a client's session is as this save of its owner says."""
        entry = self._entries.get(save.client)
        is_same = entry is not None and (entry.state, entry.expiry_s) == (save.state, save.expiry_s)
        return is_same and not (save.will or save.terms or save.flow)

    def stands(self, generation: int) -> bool:
        """Whether this session is not over; a generation that is over never comes back."""
        return generation in self._live

    def live_after(self, generation: int, count: int) -> list[int]:
        """The next generations that live, oldest first."""
        live = list(self._live)
        at = bisect_right(live, generation)
        return live[at : at + count]

    def client_of(self, generation: int) -> str:
        """The client of a session. Raises ``KeyError`` for one that is over."""
        return self._live[generation]

    @property
    def clients(self) -> list[str]:
        """All clients with a session."""
        return list(self._entries)

    @property
    def owners(self) -> list[str]:
        """All owners of sessions."""
        return list(self._of)

    def gone(self) -> list[tuple[str, int]]:
        """The clients that are gone, and since when by the wall clock."""
        return [(client, entry.gone_ms) for client, entry in self._entries.items() if entry.gone_ms]

    @staticmethod
    def opening(
        owner: str, client: str, is_new: bool, expiry_s: int, will: bytes, user: str = "", gone_ms: int = 0
    ) -> list[Any]:
        """Body of the record that gives a session to an owner. ``gone_ms``: since when its client is gone, 0 if it is
        for its client that the owner asks."""
        return [OPEN, owner, client, is_new, expiry_s, will, user, gone_ms]

    @staticmethod
    def saving(saves: Sequence[SessionSave]) -> list[Any]:
        """Body of the record that keeps the state of sessions."""
        return [SAVE, [list(save) for save in saves]]

    @staticmethod
    def ending(client: str, epoch: int) -> list[Any]:
        """Body of the record that ends a session."""
        return [END, client, epoch]

    def apply(self, record: Stored) -> Change:
        """Takes in a record. The filters and exchanges of a session end with it."""
        ended = self._apply(fact_of(record), record.position, record.stored_ms)
        if ended is None:
            return NO_CHANGE
        return Change(events=(SessionEnded(*ended), OwnerEnded(holder(ended[1]))))

    def _apply(self, body: list[Any], position: int, stored_ms: int) -> tuple[str, int] | None:
        if body[0] == OPEN:
            return self._open(position + 1, body[1:7], body[7] if len(body) > 7 else 0, stored_ms)
        if body[0] == SAVE:
            for row in body[1]:
                self._save(SessionSave(*row[:7]), stored_ms)
        elif body[0] == END:
            entry = self._entries.get(body[1])
            if entry is not None and entry.epoch == body[2]:
                self.bytes -= entry.size
                self._move(body[1], entry, None)
                del self._entries[body[1]]
                del self._live[entry.generation]
                return body[1], entry.generation
        return None

    def _open(self, epoch: int, fields: list[Any], gone_ms: int, stored_ms: int) -> tuple[str, int] | None:
        owner, client, is_new, expiry_s, will, user = fields
        owner = sys.intern(owner)  # few owners have all sessions
        known = self._entries.own(client, copy) if client in self._entries else None
        self.bytes -= 0 if known is None else known.size
        if known is not None and not is_new:
            self._move(client, known, owner)
            if known.state == CONNECTED:
                known.doubtful_ms = stored_ms
            known.epoch, known.state, known.gone_ms = epoch, CONNECTED, gone_ms
            known.expiry_s, known.user = expiry_s, user or known.user
            if known.will != will:  # the same one is not kept twice while a snapshot has it
                known.will = will
            self.bytes += known.size
            return None
        if known is not None:
            self._move(client, known, None)
            del self._live[known.generation]
        self._live[epoch] = client
        self._entries[client] = entry = Entry(owner, epoch, epoch, expiry_s, will, user)
        entry.gone_ms = gone_ms
        self.bytes += entry.size
        self._of.setdefault(owner, {})[client] = None
        return None if known is None else (client, known.generation)

    def _save(self, save: SessionSave, stored_ms: int) -> None:
        entry = self._entries.get(save.client)
        if entry is None or entry.epoch != save.epoch:
            return
        entry = self._entries.own(save.client, copy)
        self.bytes -= entry.size
        if save.state != CONNECTED and not entry.gone_ms:
            entry.gone_ms = max(stored_ms, 1)
        if save.state == LOST:
            entry.doubtful_ms = stored_ms
        entry.state, entry.expiry_s = RELEASED if save.state == LOST else save.state, save.expiry_s
        if entry.state == RELEASED:
            self._move(save.client, entry, "")
        entry.will = save.will or entry.will
        entry.terms = save.terms or entry.terms
        entry.flow = save.flow or entry.flow
        self.bytes += entry.size

    def _move(self, client: str, entry: Entry, owner: str | None) -> None:
        """Another owner has it; "": none has; ``None``: it is not there any more."""
        clients = self._of.get(entry.owner)
        if clients is not None:
            clients.pop(client, None)
            if not clients:
                del self._of[entry.owner]
        if owner is not None:
            entry.owner = owner
            if owner:
                self._of.setdefault(owner, {})[client] = None

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._entries.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._entries.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._entries, self._of = Table(), {}
        for client, *values in snapshot or ():
            entry = self._entries[client] = Entry("", 0, 0, 0, b"")
            for name, value in zip(_FIELDS, values, strict=False):
                setattr(entry, name, value)
            if entry.owner:
                self._of.setdefault(entry.owner, {})[client] = None
        self._live = dict(sorted([(entry.generation, client) for client, entry in self._entries.items()]))
        self.bytes = sum([entry.size for entry in self._entries.values()])


def _row(client: str, entry: Entry) -> list[Any]:
    return [client, *[getattr(entry, name) for name in _FIELDS]]


def will_bytes(will: bytes) -> int:
    """The counted bytes of a will; 0 without one."""
    return 0 if will == NO_WILL else len(will)


def holder(generation: int, home: str = "") -> str:
    """The owner name under which a session's filters are open; at other brokers than its home with the home's name."""
    return f"{LASTING}session/{generation}@{home}" if home else f"{LASTING}session/{generation}"


def homes_of(owners: Iterable[str]) -> set[str]:
    """Names of the other brokers at which the sessions among these owners are at home."""
    found = [session_of(owner) for owner in owners]
    return {one[1] for one in found if one is not None and one[1]}


def session_of(owner: str) -> tuple[int, str] | None:
    """Generation and home (empty: this broker) of the session that an owner name stands for, if it does."""
    found = _HOLDER.fullmatch(owner)
    return (int(found[1]), found[2] or "") if found is not None else None
