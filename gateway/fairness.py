"""Deficit round robin: a bounded amount of work in each round, shared fairly among keys.

Items wait by key (a session, a connection, an address), and keys have turns. A key is served until its items have cost
``quantum``, then the next; what it costs beyond that is taken off its next turns. A cost may be known only when the
item is carried out, so it is charged, not announced. A key without items is forgotten, and owes nothing when it
returns. With one item a key this is first come, first served. Pure.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

_NO_BOUND: Final = 1 << 60

K = TypeVar("K")
T = TypeVar("T")


class _Waiting(Generic[T]):
    """The items of one key, and the cost for which it may still be served in this turn."""

    __slots__ = ("credit", "items")

    def __init__(self, credit: int) -> None:
        self.items: deque[T] = deque()
        self.credit = credit

    def spend(self, cost: int) -> None:
        """Takes a cost off the credit; a negative one adds to it."""
        self.credit -= cost


class FairQueue(Generic[K, T]):
    """Items that wait for work, served fairly by key.

    Attributes:
        room: the cost that this round has left.

    Args:
        quantum: the cost of one turn.
        room: the cost of a round; without it a round has no bound.
    """

    __slots__ = ("_count", "_emptied", "_keys", "_quantum", "room")

    def __init__(self, quantum: int, room: int = _NO_BOUND) -> None:
        self._quantum = quantum
        self._keys: OrderedDict[K, _Waiting[T]] = OrderedDict()  # the one whose turn it is stands first
        self._emptied: K | None = None  # its last item was taken, and may be put back: it owes until the next is
        self._count = 0
        self.room = room

    def __len__(self) -> int:
        return self._count

    def begin(self, room: int) -> None:
        """A round begins, and has room for work of this cost."""
        self.room = room

    def add(self, key: K, item: T) -> None:
        """Puts an item behind those of its key, and a new key behind all others."""
        waiting = self._keys.get(key)
        if waiting is None:
            waiting = self._keys[key] = _Waiting(self._quantum)
        waiting.items.append(item)
        self._count += 1

    def take(self) -> tuple[K, T] | None:
        """The item whose turn it is, behind its key; ``None`` if none waits, or the round has no room left."""
        if self._emptied is not None:
            emptied, self._emptied = self._emptied, None
            if emptied in self._keys and not self._keys[emptied].items:
                del self._keys[emptied]
        if not self._count or self.room <= 0:
            return None
        key = next(iter(self._keys))
        waiting = self._keys[key]
        while waiting.credit <= 0:
            waiting.spend(-self._quantum if len(self._keys) > 1 else waiting.credit - self._quantum)
            self._keys.move_to_end(key)
            key = next(iter(self._keys))
            waiting = self._keys[key]
        item = waiting.items.popleft()
        self._count -= 1
        if not waiting.items:
            self._emptied = key
        return key, item

    def charge(self, key: K, cost: int) -> None:
        """Charges the cost of a key's work to the round and to the key's turn."""
        self.room -= cost
        waiting = self._keys.get(key)
        if waiting is not None:
            waiting.spend(cost)

    def drop(self, key: K) -> list[T]:
        """Gives up the items of a key, and returns them."""
        if self._emptied == key:
            self._emptied = None
        waiting = self._keys.pop(key, None)
        if waiting is None:
            return []
        self._count -= len(waiting.items)
        return list(waiting.items)

    def crowd_out(self, key: K) -> T | None:
        """Makes room for one more item of a key in a queue that is full: takes out the last item of the key with the
        most items. ``None`` if with that item this key would have as many."""
        own = len(self._keys[key].items) if key in self._keys else 0
        longest = max(self._keys.values(), key=lambda one: len(one.items), default=None)
        if longest is None or len(longest.items) <= own + 1:
            return None
        self._count -= 1
        return longest.items.pop()
