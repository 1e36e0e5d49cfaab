"""Reads the events of one bus for its resting rules, so that many rules of which few match cost little.

A scout reads a bus once, from its end on, and finds by an index the rules that want an event. It moves no position and
delivers nothing; it wakes the rule. A rule that wakes knows up to where a queue had nothing for it, and skips that
part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from events.mapping import Reading
from events.pattern import Pattern
from events.pattern_index import PatternIndex
from penstock import MessageQueue, Reader, ReceivedMessage
from penstock.errors import InvalidMessage, PenstockError

AGAIN_S: Final = 1.0
_log = logging.getLogger(__name__)
Skips = dict[MessageQueue, tuple[int, int]]
"""By queue: from the first offset up to the second one, nothing is for the rule."""


class RestingRule:
    """A rule that sleeps, or may sleep soon.

    Attributes:
        pattern: None wants every event.
        called: set by the first event that is for it.
        doubted: set where events may have passed by unseen, so that it has to look itself.
    """

    def __init__(self, pattern: Pattern | None) -> None:
        self.pattern = pattern
        self.called = trio.Event()
        self.doubted = trio.Event()
        self._since: dict[MessageQueue, int] = {}
        self._first: dict[MessageQueue, int] = {}

    def rest(self, seen: Mapping[MessageQueue, int]) -> None:
        """It rests from here on: ``seen`` is what the scout has read of each queue, and later events wake it."""
        self.called, self.doubted = trio.Event(), trio.Event()
        self._since, self._first = dict(seen), {}

    def found(self, message: ReceivedMessage) -> None:
        """A message is for it."""
        self._first.setdefault(message.queue, message.offset)
        self.called.set()

    def doubt(self) -> None:
        """Events may have passed by unseen."""
        self._since, self._first = {}, {}
        self.doubted.set()

    def skips(self, seen: Mapping[MessageQueue, int]) -> Skips:
        """The offsets that it need not look at."""
        ends = {queue: self._first.get(queue, seen[queue]) for queue in self._since if queue in seen}
        return {queue: (self._since[queue], end) for queue, end in ends.items() if end > self._since[queue]}


class Scout:
    """The scout of one bus.

    Args:
        topics: the bus's, and those of its sources.
        open_reader: a reader of a topic, from its end on.

    Attributes:
        seen: the offset of the next message that it looks at, by queue.
    """

    def __init__(self, topics: Sequence[str], reading: Reading, open_reader: Callable[[str], Reader]) -> None:
        self.seen: dict[MessageQueue, int] = {}
        self._topics = topics
        self._reading = reading
        self._open_reader = open_reader
        self._sleepers: dict[str, RestingRule] = {}
        self._index: PatternIndex[RestingRule] | None = None
        self._reads: set[str] = set()
        self._is_started = False

    @property
    def sees_all(self) -> bool:
        """Whether it reads all topics now: only then a rule may sleep."""
        return self._reads == set(self._topics)

    @property
    def has_rules(self) -> bool:
        """Whether it looks for any rule."""
        return bool(self._sleepers)

    def start(self, nursery: trio.Nursery, scope: trio.CancelScope) -> None:
        """Reads from now on, until the scope is cancelled; does nothing where it reads already."""
        if not self._is_started:
            self._is_started = True
            nursery.start_soon(self._run, scope)

    def follow(self, rule: str, sleeper: RestingRule) -> None:
        """Looks for a rule, from the next message on."""
        self._sleepers[rule] = sleeper
        self._index = None

    def forget(self, rule: str) -> None:
        """Looks for a rule no more."""
        if self._sleepers.pop(rule, None) is not None:
            self._index = None

    async def _run(self, scope: trio.CancelScope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for topic in self._topics:
                    nursery.start_soon(self._read, topic)

    async def _read(self, topic: str) -> None:
        while True:
            try:
                async with self._open_reader(topic) as reader:
                    self._reads.add(topic)
                    async for batch in reader:
                        self.look(batch)
            except PenstockError as error:
                _log.info("the bus %s cannot be looked at for rules that sleep: %s", self._topics[0], error)
            finally:
                self._reads.discard(topic)
                self.seen = {queue: offset for queue, offset in self.seen.items() if queue.topic != topic}
                for sleeper in self._sleepers.values():
                    sleeper.doubt()
            await trio.sleep(AGAIN_S)

    def look(self, batch: Sequence[ReceivedMessage]) -> None:
        """Wakes the rules that want messages of one queue."""
        queue = batch[0].queue
        if self._index is None:
            self._index = PatternIndex([(one, one.pattern) for one in self._sleepers.values()])
        if self.seen.get(queue, batch[0].offset) != batch[0].offset:  # what was between was removed
            for sleeper in self._sleepers.values():
                sleeper.doubt()
        for message in batch:
            try:
                event = self._reading.event_of(message)
            except InvalidMessage:
                continue
            if event is not None:
                for sleeper in self._index.matching(event):
                    sleeper.found(message)
        self.seen[queue] = batch[-1].offset + 1
