"""Fold of topics: which exist, with how many queues and at which level, and where the queues of deleted ones ended.

A topic that is made again begins its offsets where those of its earlier life ended, so that an offset never means
another message (invariant I8). The ends of the last ``GONE_MAX`` deleted topics are kept by name; of those before them
only the highest (the *floor*), at which every topic begins that is not known by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from broker.kernel.fold import fact_of, packed
from broker.store.records import Change, MadeQueue, Stored
from penstock.protocol.requests.topics import TopicInfo
from topicmap.queues import topic_queue

TOPIC: Final = "%sys%topics"
GONE_MAX: Final = 10_000
CHANGED_MAX: Final = 20_000
"""So many changes since the restore are told one by one."""


class TopicGone(NamedTuple):
    """A topic was deleted with these queues, says the record before ``position``."""

    topic: str
    queues: tuple[str, ...]
    position: int


class Topics:
    """All topics of a broker. ``version`` grows by one with each change, so that name servers can tell old from new."""

    KEY: Final = "topics"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._topics: dict[str, TopicInfo] = {}
        self._by_message: dict[str, None] = {}  # those that their first message made
        self._begins: dict[str, tuple[int, ...]] = {}  # where the queues of a topic begin that was made again
        self._gone: dict[str, tuple[int, ...]] = {}  # where those of deleted topics ended, the latest last
        self._floor = 0
        self.version = 0
        self._changed: dict[str, int] = {}  # since the restore: at which version, the latest last
        self._told_from = 0  # all that has changed since this version is there

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self._topics.values())

    def get(self, topic: str) -> TopicInfo | None:
        """The topic of that name if there is one."""
        return self._topics.get(topic)

    @property
    def by_message(self) -> list[str]:
        """The topics that were made by their first message."""
        return list(self._by_message)

    def is_by_message(self, topic: str) -> bool:
        """Whether a topic was made by its first message."""
        return topic in self._by_message

    def ended(self, topic: str) -> dict[int, int]:
        """Where queues of a topic ended that are not there now, by their numbers, as far as that is kept: those of a
        deleted one, and those that one had which was made again with fewer."""
        known = self._topics.get(topic)
        ends = self._gone.get(topic, ()) if known is None else self._begins.get(topic, ())
        return {number: end for number, end in enumerate(ends) if known is None or number >= known.queues}

    def since(self, version: int) -> list[TopicInfo] | None:
        """All topics that have changed since a version; those that are gone have 0 queues. ``None`` where that is not
        known any more."""
        if version < self._told_from:
            return None
        names = []
        for name, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            names.append(name)
        return [self._topics.get(name) or TopicInfo(name, 0, "") for name in names]

    def making(self, topic: TopicInfo, *, by_message: bool = False) -> list[Any]:
        """Body of the record that makes a topic, or changes it: ``by_message`` is then as before or false."""
        ended = self._gone.get(topic.topic, ())
        begins = [ended[at] if at < len(ended) else self._floor for at in range(max(topic.queues, len(ended)))]
        if topic.topic in self._topics or not any(begins):
            begins = []
        return [*topic, by_message, begins] if by_message or begins else list(topic)

    @staticmethod
    def deleting(topic: str, ends: Sequence[int]) -> list[Any]:
        """Body of the record that deletes a topic. ``ends``: the next offset of each queue."""
        return [topic, 0, "", list(ends)]

    def apply(self, record: Stored) -> Change:
        name, queues, level, *more = fact_of(record)
        self.version += 1
        self._note_changed(name)
        if not queues:
            return self._delete(name, more[0] if more else (), record.position + record.size)
        known = name in self._topics
        self._topics[name] = TopicInfo(name, queues, level)
        if more and more[0] is True:
            self._by_message[name] = None
        else:
            self._by_message.pop(name, None)
        if len(more) > 1 and more[1]:
            self._begins[name] = tuple(more[1])
        elif not known:
            self._begins.pop(name, None)
        self._gone.pop(name, None)
        begins = self._begins.get(name, ())
        made = [MadeQueue(name, at, begins[at] if at < len(begins) else 0) for at in range(queues)]
        return Change(made=made)

    def _delete(self, name: str, ends: Sequence[int], position: int) -> Change:
        known = self._topics.pop(name, None)
        self._by_message.pop(name, None)
        began = self._begins.pop(name, ())
        before = self._gone.pop(name, ())
        last = tuple(map(max, zip_longest(ends, began, before, fillvalue=0)))
        if any(last):
            self._gone[name] = last
        while len(self._gone) > GONE_MAX:
            self._floor = max(self._floor, *self._gone.pop(next(iter(self._gone))))
        queues = tuple([topic_queue(name, at) for at in range(known.queues if known else len(ends))])
        return Change(ended=queues, events=(TopicGone(name, queues, position),))

    def _note_changed(self, name: str) -> None:
        self._changed.pop(name, None)
        self._changed[name] = self.version
        if len(self._changed) > CHANGED_MAX:
            self._told_from = self._changed.pop(next(iter(self._changed)))

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        rows = [self._row(topic) for topic in sorted(self._topics.values())]
        return [self.version, rows, [[name, list(ends)] for name, ends in self._gone.items()], self._floor]

    def _row(self, topic: TopicInfo) -> list[Any]:
        begins = self._begins.get(topic.topic, ())
        if topic.topic in self._by_message or begins:
            return [*topic, topic.topic in self._by_message, list(begins)]
        return list(topic)

    def freeze(self) -> Iterator[bytes]:
        return packed(self.snapshot())

    def restore(self, snapshot: list[Any] | None) -> None:
        self.version, rows, *more = snapshot or (0, ())
        self._topics, self._by_message, self._begins = {}, {}, {}
        for name, queues, level, *later in rows:
            self._topics[name] = TopicInfo(name, queues, level)
            if later and later[0] is True:
                self._by_message[name] = None
            if len(later) > 1 and later[1]:
                self._begins[name] = tuple(later[1])
        self._gone = {name: tuple(ends) for name, ends in more[0]} if more else {}
        self._floor = more[1] if len(more) > 1 else 0
        self._changed, self._told_from = {}, self.version
