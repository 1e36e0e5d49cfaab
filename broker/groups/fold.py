"""Fold of consumer offsets: for each group, the next offset to read in each queue, when it last committed, which
gateways held its position for subscriptions then, how often it was set back, and how often members of an ordered group
have tried messages that it has not passed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.store.queue_index import LIGHT
from broker.store.records import NO_CHANGE, Change, Stored
from broker.topics.fold import TopicGone
from penstock.protocol.requests.groups import QueueOffset, Tried

TOPIC: Final = "%sys%offsets"
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(slots=True)
class GroupProgress:
    """Committed offsets of one group by queue. ``committed_ms``: store time of its last commit.
    ``holders``: names of gateways (``holders.py``). ``set_backs``: how often it was set back, by queue. ``tried``: of
    each queue the messages that were tried, and how often."""

    committed_ms: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    set_backs: dict[str, int] = field(default_factory=dict)
    tried: dict[str, dict[int, int]] = field(default_factory=dict)


class Offsets:
    """Committed positions of all groups."""

    KEY: Final = "offsets"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._groups: Table[GroupProgress] = Table()
        self._light: dict[str, dict[str, None]] = {}  # light queue -> groups with an offset in it
        self._in_topics: dict[str, int] = {}  # topic -> offsets of all groups in its queues

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    @property
    def groups(self) -> list[str]:
        """Groups that ever committed."""
        return list(self._groups)

    def of(self, group: str) -> Mapping[str, int]:
        """Queue -> committed offset of a group; empty where it never committed."""
        known = self._groups.get(group)
        return known.offsets if known else _NONE

    def committed_ms(self, group: str) -> int:
        """Store time of a group's last commit, 0 if it never committed."""
        known = self._groups.get(group)
        return known.committed_ms if known else 0

    def holders(self, group: str) -> tuple[str, ...]:
        """Gateways that hold a group's position."""
        known = self._groups.get(group)
        return known.holders if known else ()

    def set_backs(self, group: str) -> Mapping[str, int]:
        """The number of set-backs of a group's position, by queue, without queues that have none."""
        known = self._groups.get(group)
        return known.set_backs if known else _NONE

    def tried(self, group: str) -> Iterator[Tried]:
        """Messages of a group's queues that were tried and not passed."""
        known = self._groups.get(group)
        for queue, attempts in known.tried.items() if known else ():
            for offset, count in attempts.items():
                yield Tried(queue, offset, count)

    def attempts(self, group: str, queue: str, offset: int) -> int:
        """Number of noted attempts of an ordered group's message; 0 without a note."""
        known = self._groups.get(group)
        return known.tried.get(queue, {}).get(offset, 0) if known else 0

    def held(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Groups whose position gateways hold, and who these are."""
        for group, progress in self._groups.items():
            if progress.holders:
                yield group, progress.holders

    @staticmethod
    def fact(
        group: str,
        offsets: Iterable[QueueOffset],
        holders: Iterable[str] | None = None,
        tried: Iterable[Tried] = (),
    ) -> list[Any]:
        """Body of the record that commits offsets; none: the group is forgotten. ``holders``: from now on, if that is
        to be said. ``tried``: messages of these queues at or behind the offsets."""
        body: list[Any] = [group, [list(one) for one in offsets]]
        rows = [list(one) for one in tried]
        if holders is None and not rows:
            return body
        body.append(None if holders is None else list(holders))
        return [*body, rows] if rows else body

    def apply(self, record: Stored) -> Change:
        body = fact_of(record)
        group, offsets = body[:2]
        if not offsets:
            self._forget_group(group)
            return NO_CHANGE
        self._groups.setdefault(group, GroupProgress())
        progress = self._groups.own(group, _copied)
        progress.committed_ms = record.stored_ms
        for queue, offset in offsets:
            known = progress.offsets.get(queue)
            if known is None:
                self._note(queue, group)
            elif offset < known:
                progress.set_backs[queue] = progress.set_backs.get(queue, 0) + 1
                progress.tried.pop(queue, None)  # it begins anew
            progress.offsets[queue] = offset
            if queue in progress.tried:
                _pass(progress.tried, queue, offset)
        if len(body) > 2 and body[2] is not None:
            progress.holders = tuple(body[2])
        for queue, offset, count in body[3] if len(body) > 3 else ():
            progress.tried.setdefault(queue, {})[offset] = count
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """Offsets in a queue mean nothing once it has ended, also if it begins again."""
        for queue in change.ended:
            for group in self._light.pop(queue, ()):
                self._forget(group, [queue])
        for event in change.events:
            if isinstance(event, TopicGone) and self.reads(event.topic):
                self._forget_topic(event)
        return NO_CHANGE

    def reads(self, topic: str) -> bool:
        """Whether a group has an offset in a queue of this topic."""
        return topic in self._in_topics

    def _note(self, queue: str, group: str) -> None:
        if queue.startswith(LIGHT):
            self._light.setdefault(queue, {})[group] = None
        else:
            topic = queue.rpartition(":")[0]
            self._in_topics[topic] = self._in_topics.get(topic, 0) + 1

    def _forget_group(self, group: str) -> None:
        progress = self._groups.pop(group, None)
        for queue in progress.offsets if progress else ():
            if queue in self._light:
                del self._light[queue][group]
            else:
                self._leave_topic(queue)

    def _leave_topic(self, queue: str) -> None:
        """One offset less in a topic's queue."""
        topic = queue.rpartition(":")[0]
        left = self._in_topics.get(topic, 0) - 1
        if left > 0:
            self._in_topics[topic] = left
        else:
            self._in_topics.pop(topic, None)

    def _forget_topic(self, gone: TopicGone) -> None:
        queues = frozenset(gone.queues)
        for group, progress in list(self._groups.items()):
            if not queues.isdisjoint(progress.offsets):
                self._forget(group, sorted(queues.intersection(progress.offsets)))
        self._in_topics.pop(gone.topic, None)

    def _forget(self, group: str, queues: Iterable[str]) -> None:
        progress = self._groups.own(group, _copied)
        for queue in queues:
            del progress.offsets[queue]
            progress.set_backs.pop(queue, None)
            progress.tried.pop(queue, None)
        if not progress.offsets:
            del self._groups[group]

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return self._groups.rows(_row)

    def freeze(self) -> Iterator[bytes]:
        return self._groups.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._groups = Table((row[0], _progress(*row[1:6])) for row in snapshot or ())
        self._light, self._in_topics = {}, {}
        for group, progress in self._groups.items():
            for queue in progress.offsets:
                self._note(queue, group)


def _copied(progress: GroupProgress) -> GroupProgress:
    offsets, set_backs = dict(progress.offsets), dict(progress.set_backs)
    tried = {queue: dict(attempts) for queue, attempts in progress.tried.items()}
    return GroupProgress(progress.committed_ms, offsets, progress.holders, set_backs, tried)


def _pass(tried: dict[str, dict[int, int]], queue: str, position: int) -> None:
    """Forgets attempts of messages before a position."""
    left = {offset: count for offset, count in tried[queue].items() if offset >= position}
    if left:
        tried[queue] = left
    else:
        del tried[queue]


def _row(group: str, progress: GroupProgress) -> list[Any]:
    row = [group, progress.committed_ms, _sorted(progress.offsets)]
    if progress.holders or progress.set_backs or progress.tried:
        row += [list(progress.holders), _sorted(progress.set_backs)]
    if progress.tried:
        row.append([[queue, sorted(map(list, progress.tried[queue].items()))] for queue in sorted(progress.tried)])
    return row


def _sorted(numbers: Mapping[str, int]) -> list[Any]:
    return sorted([queue, number] for queue, number in numbers.items())


def _progress(
    committed_ms: int,
    offsets: list[Any],
    holders: Iterable[str] = (),
    set_backs: Iterable[Any] = (),
    tried: Iterable[Any] = (),
) -> GroupProgress:
    attempts = {queue: dict(rows) for queue, rows in tried}
    return GroupProgress(committed_ms, dict(offsets), tuple(holders), dict(set_backs), attempts)
