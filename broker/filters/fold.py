"""Fold of open filters: which MQTT filters have a light queue, and who holds them open.

A filter is open while at least one owner (a gateway) holds it. The index answers which filters a message's name
matches; that is the fan-out, and it is decided by the log's prefix alone.

Of an owner without a lease it is also known where in the log it opened a filter: messages from there on are
meant for it, even if it comes to read only much later.

A shared subscription, ``$share/GROUP/FILTER``, is held by its owners in the same way. It has no queue of its own: as
long as an owner holds it, it holds the plain filter, under its own name with ``~`` before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.store.records import NO_CHANGE, Change, Stored
from topicmap.filters import FilterIndex
from topicmap.names import InvalidName, is_share, plain_filter, weight
from topicmap.queues import filter_queue

TOPIC: Final = "%sys%filters"
OPEN: Final = "open"
CLOSE: Final = "close"
LASTING: Final = "~"
"""Owners whose names begin so have no lease."""

Owners = str | dict[str, int]
"""Who holds a filter, in the order in which they came, and since which log position (0: it does not matter). Most have
one owner, and there may be 100,000 of them."""


class ShareEnded(NamedTuple):
    """The last owner of a shared subscription has closed it."""

    share: str


class OwnerEnded(NamedTuple):
    """An owner of filters is no more: its filters close."""

    owner: str


class Filters:
    """Open filters with their owners."""

    KEY: Final = "filters"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._index = FilterIndex()
        self._surplus = 0
        self._owners: Table[Owners] = Table()  # filter -> owners, in the order in which they came
        self._held: dict[str, dict[str, None]] = {}  # owner -> filters

    def __len__(self) -> int:
        return len(self._index)

    @property
    def open(self) -> list[str]:
        """All open filters; of shared subscriptions the plain ones."""
        return list(self._index)

    @property
    def weight(self) -> int:
        """As how many filters the open ones count: a long one counts several times."""
        return len(self._index) + self._surplus

    def queues_of(self, name: str) -> Sequence[str]:
        """Light queues of the open filters that match a name."""
        return [filter_queue(filter) for filter in self._index.match(name)]

    def has_room(self, filter: str) -> bool:
        """Whether the work of a match stays bounded with one more filter of this form."""
        return self._index.has_room(filter)

    def __contains__(self, filter: str) -> bool:
        return filter in self._owners

    def holds(self, owner: str, filter: str) -> bool:
        """Whether this owner holds the filter open."""
        return filter in self._held.get(owner, {})

    def owners_of(self, filter: str) -> list[str]:
        """The holders of a filter."""
        return list(_names(self._owners.get(filter)))

    def held_by(self, owner: str) -> list[str]:
        """The filters that an owner holds."""
        return list(self._held.get(owner, {}))

    def begun(self, owner: str, filter: str) -> int:
        """The log position at which an owner without a lease opened a filter; 0 if that is not known."""
        owners = self._owners.get(filter)
        return owners.get(owner, 0) if isinstance(owners, dict) else 0

    def levels_below(self, parent: str, *, is_first: bool) -> dict[str, tuple[int, int]]:
        """The next levels below a parent, or all first levels. Of each: how many filters begin with it, and how many
        owners hold the filter that ends with it. What only shares hold does not count."""
        prefix, found = "" if is_first else f"{parent}/", dict[str, tuple[int, int]]()
        at = len(prefix)
        for filter, owners in self._owners.items():
            if filter.startswith(prefix):
                level, slash, _ = filter[at:].partition("/")
                filters, holders = found.get(level, (0, 0))
                own = [one for one in _names(owners) if not one.startswith(f"{LASTING}$share/")]
                found[level] = filters + bool(own), holders + (0 if slash else len(own))
        return {level: row for level, row in found.items() if row[0]}

    @property
    def owners(self) -> list[str]:
        """All who hold a filter."""
        return list(self._held)

    @staticmethod
    def fact(action: str, owner: str, filters: Sequence[str]) -> list[Any]:
        """Body of the record with which an owner opens or closes filters."""
        return [action, owner, list(filters)]

    def apply(self, record: Stored) -> Change:
        action, owner, filters = fact_of(record)[:3]
        filters = [one for one in filters if _is_legal(one)]
        if action == OPEN:
            return Change(opened=self._open(owner, filters, record.position if owner.startswith(LASTING) else 0))
        return self._closed(owner, filters) if action == CLOSE else NO_CHANGE

    def follow(self, change: Change) -> Change:
        """The filters of an owner that ends close."""
        ended = [event.owner for event in change.events if isinstance(event, OwnerEnded)]
        if not any(owner in self._held for owner in ended):
            return NO_CHANGE
        queues, events = list[str](), list[object]()
        for owner in ended:
            self._close(owner, self.held_by(owner), queues, events)
        return Change(ended=queues, events=events)

    def _closed(self, owner: str, filters: list[str]) -> Change:
        queues, events = list[str](), list[object]()
        self._close(owner, filters, queues, events)
        return Change(ended=queues, events=events)

    def _open(self, owner: str, filters: list[str], position: int = 0) -> list[str]:
        opened = []
        owner = sys.intern(owner)  # few owners hold nearly all filters
        for filter in filters:
            if owner not in _names(self._owners.get(filter)):
                self._join(owner, filter, position)
                self._held.setdefault(owner, {})[filter] = None
            if is_share(filter):
                opened += self._open(share_holder(filter), [plain_filter(filter)])
            elif self._index.add(filter):
                self._surplus += weight(filter) - 1
                opened.append(filter_queue(filter))
        return opened

    def _join(self, owner: str, filter: str, position: int) -> None:
        owners = self._owners.get(filter)
        if owners is None:
            self._owners[filter] = {owner: position} if position else owner
        elif isinstance(owners, str):
            self._owners[filter] = {owners: 0, owner: position}
        else:
            self._shared(filter)[owner] = position

    def _shared(self, filter: str) -> dict[str, int]:
        """The owners of a filter that has or had several, or one without a lease, to be changed."""
        owners = self._owners.own(filter, _copied)
        assert isinstance(owners, dict), "one owner is no table"
        return owners

    def _close(self, owner: str, filters: list[str], queues: list[str], events: list[object]) -> None:
        """Adds the light queues and the shared subscriptions that end with it."""
        for filter in filters:
            owners = self._owners.get(filter)
            if owner not in _names(owners):
                continue
            if isinstance(owners, dict):
                owners = self._shared(filter)
                del owners[owner]
            del self._held[owner][filter]
            if not owners or isinstance(owners, str):
                del self._owners[filter]
                self._end(filter, queues, events)
        if owner in self._held and not self._held[owner]:
            del self._held[owner]

    def _end(self, filter: str, queues: list[str], events: list[object]) -> None:
        if is_share(filter):
            events.append(ShareEnded(filter))
            self._close(share_holder(filter), [plain_filter(filter)], queues, events)
        else:
            self._index.remove(filter)
            self._surplus -= weight(filter) - 1
            queues.append(filter_queue(filter))

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._owners.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._owners.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._index, self._surplus, self._owners, self._held = FilterIndex(), 0, Table(), {}
        for filter, owners, *more in snapshot or ():
            begun = more[0] if more else [0] * len(owners)
            known = dict(zip(owners, begun, strict=True))
            self._owners[filter] = owners[0] if len(owners) == 1 and not begun[0] else known
            for owner in owners:
                self._held.setdefault(owner, {})[filter] = None
            if not is_share(filter) and self._index.add(filter):
                self._surplus += weight(filter) - 1


def _is_legal(filter: str) -> bool:
    """Whether it can be folded in: a share that has no filter was never open."""
    try:
        plain_filter(filter)
    except InvalidName:
        return False
    return True


def share_holder(share: str) -> str:
    """The owner name under which a shared subscription holds its filter open."""
    return LASTING + share


def _names(owners: Owners | None) -> Iterable[str]:
    if owners is None:
        return ()
    return (owners,) if isinstance(owners, str) else owners


def _copied(owners: Owners) -> Owners:
    return dict(owners) if isinstance(owners, dict) else owners


def _row(filter: str, owners: Owners) -> list[Any]:
    if isinstance(owners, str):  # nearly all
        return [filter, [owners]]
    begun = list(owners.values())
    return [filter, list(owners), begun] if any(begun) else [filter, list(owners)]
