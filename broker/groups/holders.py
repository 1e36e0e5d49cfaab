"""Holders: gateways whose subscriptions share a position under a group's name, and the progress of each.

The position of a group without members moves to the progress of its slowest holder, never back.
docs/protocols/named-positions.md has the rules:

| report of a holder | effect in a queue |
|---|---|
| ``HOLDS`` | the position stays where it is |
| none | the holder has no part |
| older than the last set-back of the position | does not count; the answer says why |

Holders live in memory until their leases end. Each commit's record has their names (``broker/groups/fold.py``), so a
restarted broker waits for its earlier holders (``unheard``). Pure: ``now`` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker.kernel.deadlines import NEVER, Deadlines
from penstock.protocol.requests.groups import Progress

HOLDS: Final = -1
"""In the place of an offset: the position is to stay where it is."""
UNHEARD_S: Final = 15.0
"""How long a broker that was started again waits for the holders of its earlier life."""


class Holder:
    """One gateway with subscriptions of one name. ``floors``: all before them is acknowledged, by queue."""

    __slots__ = ("floors", "is_unheard")

    def __init__(self, *, is_unheard: bool = False) -> None:
        self.floors: dict[str, int] = {}
        self.is_unheard = is_unheard


class Holders:
    """The holders of all groups. ``earlier``: groups and the names of their holders, as the log has them at ``now``."""

    def __init__(self, earlier: Iterable[tuple[str, Iterable[str]]], now: float) -> None:
        self._groups = {group: {name: Holder(is_unheard=True) for name in names} for group, names in earlier}
        self._leases: Deadlines[tuple[str, str]] = Deadlines()  # group, name -> when it ends
        for group, held in self._groups.items():
            for name in held:
                self._leases.set((group, name), now + UNHEARD_S)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def names(self, group: str) -> tuple[str, ...]:
        """The holders of a group's position, in order of their names."""
        return tuple(sorted(self._groups.get(group, ())))

    def report(
        self,
        group: str,
        name: str,
        lease_s: float,
        progress: Iterable[Progress],
        set_backs: Mapping[str, int],
        now: float,
    ) -> None:
        """Takes in how far a holder has come, all of it; it is one from now on for ``lease_s``. ``set_backs``: how
        often the group's position was set back, by queue."""
        held = self._groups.setdefault(group, {}).setdefault(name, Holder())
        held.is_unheard = False
        until = self._leases.get((group, name))
        self._leases.set((group, name), now + lease_s if until == NEVER else max(until, now + lease_s))
        held.floors = {
            queue: offset for queue, offset, known in progress if offset == HOLDS or known >= set_backs.get(queue, 0)
        }

    def ahead(self, group: str, committed: Mapping[str, int]) -> dict[str, int]:
        """The offsets to which the position moves, by queue."""
        holders = self._groups.get(group, {}).values()
        if any([one.is_unheard for one in holders]):
            return {}
        least: dict[str, int] = {}
        for one in holders:
            for queue, offset in one.floors.items():
                least[queue] = min(offset, least.get(queue, offset))
        return {queue: offset for queue, offset in least.items() if offset > committed.get(queue, HOLDS)}

    def leave(self, group: str, name: str) -> None:
        """A holder has said its last word. While others are waited for, that word waits with them."""
        held = self._groups.get(group, {})
        waited_for = [self._leases.get((group, one)) for one in held if held[one].is_unheard]
        if name in held and waited_for:
            self._leases.set((group, name), max(waited_for))
            return
        self._drop(group, [name])
        if group in self._groups and not held:
            del self._groups[group]

    def set_back(self, group: str, queues: Iterable[str]) -> None:
        """A position was set back on purpose: earlier reports about these queues count no more."""
        for one in self._groups.get(group, {}).values():
            for queue in queues:
                one.floors.pop(queue, None)

    def forget(self, topic: str) -> None:
        """A topic was deleted: reports about its queues count no more."""
        for held in self._groups.values():
            for one in held.values():
                for queue in [queue for queue in one.floors if queue.rpartition(":")[0] == topic]:
                    del one.floors[queue]

    def expire(self, now: float) -> Iterator[str]:
        """Drops holders whose lease has ended and returns their groups. A group is returned twice: when it waits for no
        holder any more, so that the other reports count, and when all silent holders are gone."""
        for group, first in self._leases.due(now):  # it stays due where telling of it fails
            held = self._groups.get(group, {})
            silent = [name for name in held if self._leases.get((group, name)) <= now]
            unheard = [name for name in silent if held[name].is_unheard]
            others = [name for name in silent if not held[name].is_unheard]
            for names in (unheard, others):
                if names:
                    self._drop(group, names, but=first)
                    yield group
            if not silent:
                yield group
            if not held:
                self._groups.pop(group, None)

    def _drop(self, group: str, names: Iterable[str], but: str = "") -> None:
        """They hold nothing any more; ``but``: one whose lease stays."""
        for name in names:
            self._groups.get(group, {}).pop(name, None)
            if name != but:
                self._leases.cancel((group, name))
