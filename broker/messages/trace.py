"""Message trace: the fate of a share of a topic's messages, as messages of the topic ``%TRACE%``.

A topic is traced by its configuration (``TopicInfo.trace``). A message's unique id decides whether it is traced, so the
broker remembers nothing of the others. A traced message has a row when it is stored, each time it is given to a
consumer, to a taker or, by way of a filter, to a gateway, when a group or a device acknowledges it, and when it is
given back.

A trace is for people: rows wait in memory for the next tick and are lost in a crash; those above ``rows_max`` in a
second are dropped. It keeps up to ``OPEN_MAX`` traced messages per queue in view.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from broker.kernel.handler import handles
from broker.kernel.outcomes import Now, Outcome
from broker.messages.choosing import offset_ranges
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.destinations import Destination, Incoming
from broker.store.level import Level
from broker.store.message_store import MessageStore
from broker.topics.requests import TopicRequests
from penstock.protocol.message import CLIENT_ID, ENTRY, KEYS, MQTT_TOPIC, UNIQUE_KEY, encode_properties, property_of
from penstock.protocol.message import record_tail as tail_of
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.groups import QueueOffset
from penstock.protocol.requests.messages import Pulled, TellAcknowledged
from penstock.protocol.requests.request import Done
from penstock.protocol.runs import DIGITS, Run
from topicmap.queues import TRACE_TOPIC, topic_queue

OPEN_MAX: Final = 1_000
_UNIQUE: Final = UNIQUE_KEY.encode()
_CLIENT: Final = CLIENT_ID.encode()
_NAME: Final = MQTT_TOPIC.encode()


def _never(offset: int) -> bool:
    return False


class _Open:
    """The traced messages of one queue that are in view: their offsets, log positions and ids, oldest first."""

    __slots__ = ("ids", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.positions: list[int] = []
        self.ids: list[str] = []

    def add(self, offset: int, position: int, id: str) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.ids.append(id)
        if len(self.ids) >= 2 * OPEN_MAX:
            for some in (self.offsets, self.positions, self.ids):
                del some[:OPEN_MAX]

    def index_of(self, offset: int, position: int) -> int:
        """Index of the message at this offset and log position, -1 without one."""
        at = bisect_left(self.offsets, offset)
        is_here = at < len(self.offsets) and (self.offsets[at], self.positions[at]) == (offset, position)
        return at if is_here else -1

    def has(self, first: int, end: int) -> bool:
        """Whether one of these offsets is among them."""
        return bisect_left(self.offsets, first) < bisect_left(self.offsets, end)


class Trace:
    """The trace of one broker.

    Attributes:
        is_on: whether any topic is traced.
    """

    def __init__(
        self, state: BrokerState, topics: TopicRequests, store: MessageStore, settings: BrokerSettings, now: float
    ) -> None:
        name, rows_max = settings.name, settings.trace_rows_per_s_max
        self._kept_s = settings.trace_kept_s
        self._topics_state = state.topics
        self._topics = topics
        self._store = store
        self._name = name
        self._rows_max = rows_max
        self._room = float(rows_max)
        self._filled = now
        self._now_ms = 0
        self._every: dict[str, int] = {}
        self._open: dict[str, _Open] = {}
        self._rows: list[dict[str, Any]] = []
        self._written = self._dropped = 0
        self.is_on = False
        self.topics_changed()

    def topics_changed(self) -> None:
        """Other topics are traced than before, it may be."""
        self._every = {one.topic: one.trace for one in self._topics_state if one.trace}
        self.is_on = bool(self._every) and self._rows_max > 0
        for queue in [queue for queue in self._open if queue.rpartition(":")[0] not in self._every]:
            del self._open[queue]

    def _take_room(self, wanted: int) -> int:
        room = min(wanted, int(self._room))
        self._room -= room
        self._dropped += wanted - room
        return room

    # ------------------------------------------------------------ what happens

    def stored(self, runs: Sequence[Run], destinations: Sequence[Destination], now_ms: int) -> None:
        """Runs were stored."""
        self._now_ms = now_ms
        for run, destination in zip(runs, destinations, strict=True):
            every = self._every.get(destination.topic)
            if every is None or run.position < 0:
                continue
            numbers = _traced(run, destination, every)
            room = self._take_room(len(numbers)) if numbers else 0
            for number in numbers[:room]:
                self._stored(run, destination, number)

    def _stored(self, run: Run, destination: Destination, number: int) -> None:
        properties = destination.properties_of(run.tail_of(number))
        position, offset = run.position + number * run.step, run.offset + number
        id = property_of(properties, _UNIQUE).decode() or f"{self._name}:{position}"
        queue = topic_queue(destination.topic, run.queue_id)
        self._open.setdefault(queue, _Open()).add(offset, position, id)
        about = {"queue": queue, "offset": offset, "position": position, "born_ms": run.born_ms}
        sender, name = property_of(properties, _CLIENT), property_of(properties, _NAME)
        said = {"sender": sender, "name": name}
        about |= {what: value.decode("utf-8", "replace") for what, value in said.items() if value}
        self._note("stored", id, about)

    def pulled(self, queue: str, offset: int, found: Pulled | GivenPulled, reader: str) -> None:
        """A pull brought messages."""
        if not found.count:
            return
        known = self._open.get(queue)
        if known is not None:
            for first, end in _offsets(found, offset) if known.has(offset, found.next) else ():
                self._given(known, known.offsets, first, end, {"queue": queue, "reader": reader})
        elif queue.startswith("~"):
            for first, last in _stretches(found):
                for topic_queue_name, some in self._open.items():
                    about = {"queue": topic_queue_name, "reader": queue}
                    self._given(some, some.positions, first, last + 1, about)

    def popped(self, queue: str, first: int, end: int, group: str, taker: str) -> None:
        """Traces messages that a taker of a group got."""
        known = self._open.get(queue)
        if known is not None:
            self._given(known, known.offsets, first, end, {"queue": queue, "reader": group, "member": taker})

    def _given(self, known: _Open, places: Sequence[int], first: int, end: int, about: dict[str, Any]) -> None:
        start, stop = bisect_left(places, first), bisect_left(places, end)
        for at in range(start, start + self._take_room(stop - start)):
            self._note("delivered", known.ids[at], about | {"offset": known.offsets[at]})

    def committed(self, group: str, member: str, rows: Iterable[tuple[QueueOffset, int]], now_ms: int) -> None:
        """A group has committed these offsets; behind each: where it was before."""
        for (queue, offset), before in rows:
            self.acknowledged(queue, max(before, 0), offset, group, now_ms, member)

    def acknowledged(
        self,
        queue: str,
        first: int,
        end: int,
        group: str,
        now_ms: int,
        member: str = "",
        is_known: Callable[[int], bool] = _never,
    ) -> None:
        """Traces messages of a topic's queue that a group has acknowledged, but those that ``is_known`` names."""
        self._now_ms = now_ms
        traced = self._open.get(queue)
        if traced is None:
            return
        start, stop = bisect_left(traced.offsets, first), bisect_left(traced.offsets, end)
        fresh = [at for at in range(start, stop) if not is_known(traced.offsets[at])]
        for at in fresh[: self._take_room(len(fresh))]:
            about = {"queue": queue, "offset": traced.offsets[at], "reader": group, "member": member}
            self._note("acknowledged", traced.ids[at], about)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are traced."""
        return tuple(sorted(self._every)) if self.is_on else ()

    @handles(TellAcknowledged)
    def device_acknowledged(self, request: TellAcknowledged, now: float, now_ms: int) -> Outcome:
        """Traces messages that clients of a gateway have acknowledged; passes over those of other brokers."""
        self._now_ms = now_ms
        for queue, offset, position, client in request.rows:
            traced = self._open.get(queue)
            at = traced.index_of(offset, position) if traced is not None else -1
            if traced is None or at < 0:
                continue
            if self._take_room(1):
                about = {"queue": queue, "offset": offset, "reader": client, "member": request.gateway}
                self._note("acknowledged", traced.ids[at], about)
        return Now(Done())

    def given_back(self, topic: str, properties: bytes, event: str, about: dict[str, Any], now_ms: int) -> None:
        """A member has given a message back, which was in this topic first."""
        self._now_ms = now_ms
        every, id = self._every.get(topic), property_of(properties, _UNIQUE)
        if every is not None and id and not _number_of(id) % every and self._take_room(1):
            self._note(event, id.decode(), about)

    def _note(self, event: str, id: str, about: dict[str, Any]) -> None:
        row = {"event": event, "id": id, "broker": self._name, "time_ms": self._now_ms}
        self._rows.append(row | {what: value for what, value in about.items() if value != ""})

    # ------------------------------------------------------------ time

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Stores the rows that wait. Raises ``StorageFull``: they are dropped then."""
        self._now_ms = now_ms
        self._room = min(float(self._rows_max), self._room + (now - self._filled) * self._rows_max)
        self._filled = now
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        self._dropped += len(rows)
        self._topics.ensure_own(TRACE_TOPIC, now_ms, "cache", self._kept_s)
        level = self._topics.level_of(TRACE_TOPIC)
        self._store.append_facts([own_message(TRACE_TOPIC, row["id"], row, now_ms, level) for row in rows], now_ms)
        self._dropped -= len(rows)
        self._written += len(rows)

    def figures(self) -> dict[str, float]:
        """Counters since start."""
        return {"penstock_trace_rows_total": self._written, "penstock_trace_dropped_total": self._dropped}


def _traced(run: Run, destination: Destination, every: int) -> range:
    """The traced messages of a run: numbers from 0."""
    count = len(run.bodies)
    if run.counts:
        return range(-int(run.tail[-DIGITS:], 16) % every, count, every)
    id = property_of(destination.properties, _UNIQUE)
    return range(0 if id and _number_of(id) % every else count) if every > 1 and id else range(count)


def _number_of(id: bytes) -> int:
    """The number that decides about a message: its id's counter, else a checksum."""
    try:
        return int(id[-DIGITS:], 16)
    except ValueError:
        return zlib.crc32(id)


def _offsets(found: Pulled | GivenPulled, first: int) -> Iterable[tuple[int, int]]:
    """Ranges of offsets that a topic's pull returned from an offset on."""
    return [(first, found.next)] if isinstance(found, GivenPulled) else offset_ranges(found, first)


def _stretches(found: Pulled | GivenPulled) -> list[tuple[int, int]]:
    """Log positions of what a filter's pull brought, from the first to the last of a stretch without others between."""
    if isinstance(found, GivenPulled):
        return [(run.position, run.position + (len(run.bodies) - 1) * run.step) for run in found.runs]
    rows = memoryview(found.body)[: found.count * ENTRY.size]
    return [(position, position) for _, position, _, _ in ENTRY.iter_unpack(rows)]


def own_message(topic: str, keys: str, row: dict[str, Any], born_ms: int, level: Level) -> Incoming:
    """A message of the broker's own, in queue 0 of a topic, whose body is a row as JSON."""
    properties = encode_properties({KEYS: keys})
    body = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    run = Run(tail_of(topic.encode(), properties), 0, born_ms, [body])
    run.queue_id = 0
    return Incoming(run, Destination(topic, properties, level))
