"""Fold of topics: which exist, how they are configured, where the queues of deleted ones ended, and whether the broker
may be read and written at all.

A topic that is made again begins its offsets where those of its earlier life ended, so that an offset never means
another message (invariant I8). The ends of the last ``GONE_MAX`` deleted topics are kept by name; of those before them
only the highest (the *floor*), at which every topic begins that is not known by name. A topic that is there may begin
later than it did: it was purged, its retention took something, or it had fewer queues meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, Change, MadeQueue, Stored
from penstock.protocol.requests.topics import TopicInfo
from topicmap.queues import topic_queue

TOPIC: Final = "%sys%topics"
ACCESS: Final = "%sys%access"
GONE_MAX: Final = 10_000
CHANGED_MAX: Final = 20_000
"""Changes since the restore that are listed one by one."""


_DEFAULTS: Final = TopicInfo("", 0, "")
_OPTIONS: Final = TopicInfo._fields[3:]
_UNRETAINED: Final = "unretained"


class TopicGone(NamedTuple):
    """A topic was deleted with these queues, says the record before ``position``."""

    topic: str
    queues: tuple[str, ...]
    position: int


class RetainedGone(NamedTuple):
    """A topic lost its retained messages, says the record before ``position``."""

    topic: str
    position: int


class Topics:
    """All topics of a broker.

    Attributes:
        version: grows by one with each change, so that name servers can tell old from new.
        may_read, may_write: whether clients may read and write topics of this broker at all.
        unreadable: the topics that clients may not read.
    """

    KEY: Final = "topics"
    TOPICS: Final = (TOPIC, ACCESS)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._topics: dict[str, TopicInfo] = {}
        self._by_message: dict[str, None] = {}  # those that their first message made
        self._begins: dict[str, tuple[int, ...]] = {}  # of topics whose queues do not all begin at 0
        self._gone: dict[str, tuple[int, ...]] = {}  # where those of deleted topics ended, the latest last
        self._floor = 0
        self.version = 0
        self.may_read = self.may_write = True
        self.unreadable: set[str] = set()  # only ever looked up
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
        """The ends of a topic's former queues, by their numbers, as far as they are kept: those of a
        deleted one, and those that one had which was made again with fewer."""
        known = self._topics.get(topic)
        ends = self._gone.get(topic, ()) if known is None else self._begins.get(topic, ())
        return {number: end for number, end in enumerate(ends) if known is None or number >= known.queues}

    def since(self, version: int) -> list[TopicInfo] | None:
        """All topics that have changed since a version; deleted ones have 0 queues. ``None`` if that is no longer
        known."""
        if version < self._told_from:
            return None
        names = []
        for name, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            names.append(name)
        return [self._topics.get(name) or TopicInfo(name, 0, "") for name in names]

    def begins(self, topic: str) -> tuple[int, ...]:
        """The beginnings of an existing topic's queues; fewer than it has, or none, for queues that begin at 0."""
        return self._begins.get(topic, ())

    def floors(self) -> Iterator[tuple[str, int]]:
        """The queues that do not begin at 0, and where they do."""
        for topic, begins in self._begins.items():
            for number, begin in enumerate(begins[: self._topics[topic].queues]):
                yield topic_queue(topic, number), begin

    def making(
        self, topic: TopicInfo, *, by_message: bool = False, begins: Sequence[int] = (), unretained: bool = False
    ) -> list[Any]:
        """Body of the record that makes a topic, or changes it: ``by_message`` is then as before or false. ``begins``:
        where the queues of one that is there begin from now on; none: where they did. ``unretained``: its retained
        messages go."""
        if topic.topic not in self._topics:
            ended = self._gone.get(topic.topic, ())
            begins = [ended[at] if at < len(ended) else self._floor for at in range(max(topic.queues, len(ended)))]
        begins, options = list(begins) if any(begins) else [], _options(topic)
        options |= {_UNRETAINED: True} if unretained else {}
        body: list[Any] = [topic.topic, topic.queues, topic.level]
        if by_message or begins or options:
            body += [by_message, begins]
        return [*body, options] if options else body

    @staticmethod
    def allowing(*, read: bool, write: bool) -> list[Any]:
        """Body of the record that says whether clients may read and write topics of this broker."""
        return [read, write]

    @staticmethod
    def deleting(topic: str, ends: Sequence[int]) -> list[Any]:
        """Body of the record that deletes a topic. ``ends``: the next offset of each queue."""
        return [topic, 0, "", list(ends)]

    def apply(self, record: Stored) -> Change:
        self.version += 1
        if record.topic == ACCESS:
            self.may_read, self.may_write = fact_of(record)[:2]
            self._changed, self._told_from = {}, self.version  # all have changed
            return NO_CHANGE
        name, queues, level, *more = fact_of(record)
        self._note_changed(name)
        if not queues:
            return self._delete(name, more[0] if more else (), record.position + record.size)
        known = self._topics.get(name)
        self._configure(_configured(name, queues, level, more))
        if more and more[0] is True:
            self._by_message[name] = None
        else:
            self._by_message.pop(name, None)
        if len(more) > 1 and more[1]:
            self._begins[name] = tuple(more[1])
        elif known is None:
            self._begins.pop(name, None)
        self._gone.pop(name, None)
        begins = self._begins.get(name, ())
        made = [MadeQueue(name, at, begins[at] if at < len(begins) else 0) for at in range(queues)]
        fewer = [topic_queue(name, at) for at in range(queues, known.queues)] if known else []
        events: tuple[object, ...] = ()
        if len(more) > 2 and more[2].get(_UNRETAINED):
            events = (RetainedGone(name, record.position + record.size),)
        return Change(ended=fewer, made=made, events=events)

    def _configure(self, topic: TopicInfo) -> None:
        self._topics[topic.topic] = topic
        if "r" in topic.access:
            self.unreadable.discard(topic.topic)
        else:
            self.unreadable.add(topic.topic)

    def _delete(self, name: str, ends: Sequence[int], position: int) -> Change:
        known = self._topics.pop(name, None)
        self.unreadable.discard(name)
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
        gone = [[name, list(ends)] for name, ends in self._gone.items()]
        return [self.version, rows, gone, self._floor, self.may_read, self.may_write]

    def _row(self, topic: TopicInfo) -> list[Any]:
        begins, options, by_message = (
            self._begins.get(topic.topic, ()),
            _options(topic),
            topic.topic in self._by_message,
        )
        row: list[Any] = [topic.topic, topic.queues, topic.level]
        if by_message or begins or options:
            row += [by_message, list(begins)]
        return [*row, options] if options else row

    def freeze(self) -> Iterator[bytes]:
        return packed(self.snapshot())

    def restore(self, snapshot: list[Any] | None) -> None:
        self.version, rows, *more = snapshot or (0, ())
        self._topics, self._by_message, self._begins = {}, {}, {}
        self.unreadable.clear()
        for name, queues, level, *later in rows:
            self._configure(_configured(name, queues, level, later))
            if later and later[0] is True:
                self._by_message[name] = None
            if len(later) > 1 and later[1]:
                self._begins[name] = tuple(later[1])
        self._gone = {name: tuple(ends) for name, ends in more[0]} if more else {}
        self._floor = more[1] if len(more) > 1 else 0
        self.may_read, self.may_write = more[2:4] if len(more) > 3 else (True, True)
        self._changed, self._told_from = {}, self.version


def _options(topic: TopicInfo) -> dict[str, Any]:
    """The values of a topic's configuration that differ from the default, by name."""
    return {name: getattr(topic, name) for name in _OPTIONS if getattr(topic, name) != getattr(_DEFAULTS, name)}


def _configured(name: str, queues: int, level: str, more: Sequence[Any]) -> TopicInfo:
    """A topic as its record, or its row, says; what a newer broker says beyond our options is passed over."""
    said: dict[str, Any] = more[2] if len(more) > 2 and isinstance(more[2], dict) else {}
    return TopicInfo(name, queues, level, **{option: said[option] for option in _OPTIONS if option in said})
