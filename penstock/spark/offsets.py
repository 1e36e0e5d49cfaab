"""Places in the queues of a Spark query: ``{"telemetry": {"broker-a:0": 123}}``, each the next offset to read.

Pure. The same dicts are what Spark writes to its checkpoint as JSON and compares as text, so they are always sorted. A
queue's key names its broker, for two brokers may both have queue 0 of a topic. Beside the topics, ``LOGS`` names the
log that each broker's offsets are of. In one log offsets of a queue never go back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidConfig, OffsetOutOfRange

Offsets = dict[str, dict[str, Any]]
LOGS: Final = "@logs"
"""Key beside the topics; no topic has such a name. Checkpoints of older versions lack it."""
Logs = Mapping[str, str]
"""Id of the log that a broker has, by the broker's name."""

GUIDE: Final = 'docs/guide/analyst.md, "When messages are lost", says what can be done'

EARLIEST = -2
LATEST = -1
"""Kafka's numbers for a queue's two ends."""


class QueueKey(NamedTuple):
    """A queue of a topic at one broker."""

    topic: str
    broker: str
    queue: int

    @property
    def name(self) -> str:
        """Its key under its topic."""
        return f"{self.broker}:{self.queue}"


class Extent(NamedTuple):
    """Where a queue begins and ends now, the address of its broker, and the id of the broker's log (empty: unknown).
    ``first``: the first offset of its topic as it is now; one that was deleted before had those below. ``is_copy``: the
    node does not lead, and may lack the last messages. ``copies``: addresses of nodes that are to be read instead."""

    address: str
    min: int
    end: int
    log_id: str = ""
    first: int = 0
    is_copy: bool = False
    copies: tuple[str, ...] = ()


Extents = Mapping[QueueKey, Extent]
Places = dict[QueueKey, int]


class QueueLag(NamedTuple):
    """How far a query is behind in one queue: ``offset`` is the next one that it reads, ``end`` the queue's end."""

    topic: str
    broker: str
    queue: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets that are not read yet; with filters fewer may be rows."""
        return max(0, self.end - self.offset)


def to_places(offsets: Mapping[str, Mapping[str, Any]]) -> Places:
    """The queues of a checkpointed dict. Raises ``InvalidConfig`` where it is none."""
    places: Places = {}
    for topic, queues in offsets.items():
        if topic == LOGS:
            continue
        if topic.startswith("@"):
            said = f"a newer version of Penstock wrote the checkpoint: it has {topic!r}, which this one does not know"
            raise InvalidConfig(said, hint="go on with that version, or give the query a checkpointLocation of its own")
        for name, offset in queues.items():
            broker, colon, queue = name.rpartition(":")
            if not colon or not queue.isdecimal():
                raise InvalidConfig(f"{name!r} is no queue of topic {topic!r}: expected broker:number")
            places[QueueKey(topic, broker, int(queue))] = int(offset)
    return places


def lags_of(source: Mapping[str, Any]) -> list[QueueLag]:
    """The lags of a source in Spark's report of a batch; none where the source is not ours."""
    try:
        reached, ends = _reported(source.get("endOffset")), _reported(source.get("latestOffset"))
    except (ValueError, TypeError, AttributeError, InvalidConfig):
        return []
    return [
        QueueLag(key.topic, key.broker, key.queue, at, max(at, ends.get(key, at)))
        for key, at in sorted(reached.items())
    ]


def _reported(offsets: Any) -> Places:
    """Places of a report; Spark gives them as a dict or as the text of one."""
    return to_places(json.loads(offsets) if isinstance(offsets, str) else offsets or {})


def logs_in(offsets: Mapping[str, Mapping[str, Any]]) -> Logs:
    """The logs that a checkpointed dict names."""
    return {broker: str(log_id) for broker, log_id in offsets.get(LOGS, {}).items()}


def logs_of(extents: Extents) -> Logs:
    """The logs that the brokers have now, as far as they tell."""
    return {key.broker: extent.log_id for key, extent in extents.items() if extent.log_id}


def to_offsets(places: Mapping[QueueKey, int], logs: Logs | None = None) -> Offsets:
    """The dict to checkpoint; ``logs`` of brokers without a place do not matter."""
    offsets: Offsets = {}
    for key in sorted(places):
        offsets.setdefault(key.topic, {})[key.name] = places[key]
    named = {broker: logs[broker] for broker in sorted({key.broker for key in places}) if logs and broker in logs}
    return offsets | ({LOGS: named} if named else {})


def named(given: Mapping[str, Mapping[str, int]], queues: Iterable[QueueKey], option: str) -> Places:
    """What an option says for each queue: its keys are ``broker:number``, or ``number`` where one broker has the topic.

    Raises ``InvalidConfig`` where it leaves a queue out or names one that is not there.
    """
    known = sorted(queues)
    brokers: dict[str, set[str]] = {}
    for key in known:
        brokers.setdefault(key.topic, set()).add(key.broker)
    places: Places = {}
    for topic, by_queue in given.items():
        for name, value in by_queue.items():
            full = name if ":" in name else _only(brokers.get(topic, set()), topic, name, option)
            broker, _, queue = full.rpartition(":")
            places[QueueKey(topic, broker, int(queue) if queue.isdecimal() else -1)] = value
    missing = [f"{key.topic} {key.name}" for key in known if key not in places]
    unknown = [f"{key.topic} {key.name}" for key in sorted(places) if key not in known]
    if missing or unknown:
        what = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"names {', '.join(unknown)}"] * bool(unknown)
        raise InvalidConfig(f"{option} {' and '.join(what)}", hint="it names exactly the queues that are read")
    return places


def _only(brokers: set[str], topic: str, name: str, option: str) -> str:
    if len(brokers) > 1:
        hint = f"write {min(brokers)}:{name}"
        raise InvalidConfig(f"{option}: {len(brokers)} brokers have topic {topic!r}, so {name!r} is unclear", hint=hint)
    return f"{next(iter(brokers), '')}:{name}"


def settle(asked: Mapping[QueueKey, int], extents: Extents) -> Places:
    """Places with ``EARLIEST`` and ``LATEST`` replaced by today's numbers."""
    places: Places = {}
    for key, offset in asked.items():
        ends = {EARLIEST: extents[key].min, LATEST: extents[key].end}
        places[key] = ends.get(offset, offset)
    return places


def seen_before(extents: Extents, places: Mapping[QueueKey, int], logs: Mapping[str, str]) -> dict[QueueKey, Extent]:
    """Extents that reach as far as these places, which were seen in these logs, also where a copy that does not lead
    has told of them and ends earlier: it will have what lies between, and a pull waits for it."""
    found = dict(extents)
    for key, offset in places.items():
        extent = extents.get(key)
        if extent is not None and extent.is_copy and extent.end < offset and logs.get(key.broker) == extent.log_id:
            found[key] = extent._replace(end=offset)
    return found


def advance(start: Mapping[QueueKey, int], extents: Extents, rows_max: int | None = None) -> Places:
    """How far a batch from ``start`` may read: to the ends, or to a share of at most ``rows_max`` rows.

    A queue that ``start`` does not know begins at its earliest offset. Rows are shared out in proportion to what waits
    in each queue, but every queue that has something gets one at least, so that none starves.
    """
    begin = {key: start[key] if key in start else extents[key].min for key in [*start, *extents]}
    waiting = {key: max(0, extents[key].end - begin[key]) if key in extents else 0 for key in begin}
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return {key: begin[key] + waiting[key] for key in begin}
    return {key: begin[key] + min(waiting[key], max(1, rows_max * waiting[key] // total)) for key in begin}


def check_not_lost(key: QueueKey, start: int, end: int, extent: Extent | None) -> None:
    """Raises ``OffsetOutOfRange`` where some of ``[start, end)`` is no longer, or not yet again, in the queue."""
    hint = f"longer retention at the broker avoids it; {GUIDE}"
    where = f"queue {key.queue} of topic {key.topic!r} at broker {key.broker!r}"
    if extent is None:
        if start == end:
            return
        unread = f"offsets {start} to {end} were to be read from it"
        raise OffsetOutOfRange(f"the broker says that {where} is gone, and {unread}", hint=GUIDE)
    if start < extent.first and start < end:
        raise OffsetOutOfRange(
            f"{where} was deleted or purged at offset {extent.first}; offset {start} is wanted", hint=GUIDE
        )
    if start < extent.min and start < end:
        gone = f"{start} to {min(end, extent.min) - 1} are gone"
        raise OffsetOutOfRange(f"{where} begins at {extent.min} now; offset {start} is wanted: {gone}", hint=hint)
    if end > extent.end or start > end:
        raise OffsetOutOfRange(f"{where} ends at {extent.end} now; offsets {start} to {end} are wanted", hint=hint)
