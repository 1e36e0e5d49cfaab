"""Cuts what a batch reads into Spark partitions: few small queues are packed together, big ones are split.

Pure. A partition costs Spark about 20 ms however few its rows are, so a batch of few rows is one partition. A queue's
offsets stay in order within a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import LogReplaced, OffsetOutOfRange, PenstockError
from penstock.spark.offsets import GUIDE, Extents, Logs, Places, QueueKey, check_not_lost, logs_of

_log = logging.getLogger(__name__)


class Range(NamedTuple):
    """Offsets ``[start, end)`` of one queue, the address where they are read, and the log that they are of (empty:
    unknown). ``copies``: addresses of nodes that may be read instead. ``leader``: set where ``address`` is such a copy,
    which may lack messages."""

    address: str
    topic: str
    broker: str
    queue: int
    start: int
    end: int
    log_id: str = ""
    copies: tuple[str, ...] = ()
    leader: str = ""

    @property
    def rows(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


class Shape(NamedTuple):
    """How partitions are to be cut: rows that make a partition worth its cost, and the least and most of them."""

    target_rows: int
    partitions_min: int
    partitions_max: int


def of_subscription(
    start: Mapping[QueueKey, int], reads: Callable[[QueueKey], bool], *, fail_on_data_loss: bool
) -> Places:
    """The places of a checkpoint that are of queues which the query ``reads``.

    Others raise ``OffsetOutOfRange``: what was not read of them would be skipped. With ``fail_on_data_loss`` off they
    are left out with a warning.
    """
    others = sorted({key.topic for key in start if not reads(key)})
    if others:
        topics = "topic " + ", ".join(map(repr, others))
        said = (
            f"the checkpoint has offsets of {topics}, which this query does not read: what is unread there is skipped"
        )
        hint = "subscribe to it again, or give this query a checkpointLocation of its own"
        _lost(OffsetOutOfRange(said, hint=hint), fail_on_data_loss)
    return {key: offset for key, offset in start.items() if reads(key)}


def in_these_logs(start: Mapping[QueueKey, int], logs: Logs, extents: Extents, *, fail_on_data_loss: bool) -> Places:
    """Where the next batch begins: ``start``, unless a broker has another log now than the one of its offsets.

    That raises ``LogReplaced``; with ``fail_on_data_loss`` off, all that the new log has is read.
    """
    now = logs_of(extents)
    replaced = [broker for broker in sorted(logs) if now.get(broker, logs[broker]) != logs[broker]]
    places = dict(start)
    for broker in replaced:
        _lost(_replaced(broker, logs[broker], now[broker]), fail_on_data_loss)
        for key in start:
            if key.broker == broker:
                del places[key]
                places |= {key: extents[key].min} if key in extents else {}
    return places


def _replaced(broker: str, before: str, now: str) -> LogReplaced:
    said = f"the data folder of broker {broker!r} was wiped or replaced: offsets are of log {before}, and it has {now}"
    return LogReplaced(said, hint=GUIDE)


def _lost(error: PenstockError, fail_on_data_loss: bool) -> None:
    if fail_on_data_loss:
        raise error
    _log.warning("%s", error.message)


def not_beyond(start: Mapping[QueueKey, int], extents: Extents, *, fail_on_data_loss: bool) -> Places:
    """Where the next batch begins: ``start``, unless a queue ends before it, as when a broker's data was replaced.

    That raises ``OffsetOutOfRange``; with ``fail_on_data_loss`` off, reading goes on at the queue's end.
    """
    places = dict(start)
    for key in start:
        extent = extents.get(key)
        if extent is not None and extent.end < start[key]:
            try:
                check_not_lost(key, start[key], start[key], extent)
            except OffsetOutOfRange as error:
                _lost(error, fail_on_data_loss)
            places[key] = extent.end
    return places


def ranges_between(
    start: Mapping[QueueKey, int],
    end: Mapping[QueueKey, int],
    extents: Extents,
    *,
    fail_on_data_loss: bool,
    start_logs: Logs | None = None,
    end_logs: Logs | None = None,
) -> list[Range]:
    """The non-empty ranges of a batch, in the order of their queues.

    A queue that only ``end`` knows is new: it is read from its first offset ever. Offsets that retention removed
    raise ``OffsetOutOfRange``, those of a log that was replaced ``LogReplaced``; with ``fail_on_data_loss`` off they
    are passed over with a warning.
    """
    found: list[Range] = []
    for key in sorted(end):
        extent = extents.get(key)
        first, last = start.get(key, 0 if extent is None else extent.first), end[key]
        before, after = (start_logs or {}).get(key.broker, ""), (end_logs or {}).get(key.broker, "")
        if extent is not None and first != last:
            if after and extent.log_id and after != extent.log_id:
                _lost(_replaced(key.broker, after, extent.log_id), fail_on_data_loss)
                continue
            if before and after and before != after:
                _lost(_replaced(key.broker, before, after), fail_on_data_loss)
                first = extent.min
        try:
            check_not_lost(key, first, last, extent)
        except OffsetOutOfRange as error:
            _lost(error, fail_on_data_loss)
        if extent is None:
            continue
        first, last = max(first, extent.min), min(last, extent.end)
        if first < last:
            where = (key.topic, key.broker, key.queue)
            found.append(Range(extent.address, *where, first, last, extent.log_id, extent.copies))
    return found


def pack(ranges: Sequence[Range], shape: Shape) -> list[tuple[Range, ...]]:
    """The partitions: all of about the same number of rows, each at least ``target_rows`` if a batch has them."""
    total = sum(one.rows for one in ranges)
    if not total:
        return []
    wanted = max(shape.partitions_min, -(-total // shape.target_rows))
    wanted = max(1, min(wanted, max(shape.partitions_max, shape.partitions_min)))
    size = -(-total // wanted)
    partitions: list[list[Range]] = [[]]
    room = size
    for one in ranges:
        at = one.start
        while at < one.end:
            if room == 0:
                partitions.append([])
                room = size
            until = min(one.end, at + room)
            partitions[-1].append(one._replace(start=at, end=until))
            room -= until - at
            at = until
    return [tuple(partition) for partition in partitions]


def spread(partitions: Sequence[tuple[Range, ...]]) -> list[tuple[Range, ...]]:
    """The partitions, each read at one of its log's copies where it has any: in turn, and beginning with another one
    in each batch, for many a batch is one partition."""
    return [tuple(_at_copy(one, number + part[0].start) for one in part) for number, part in enumerate(partitions)]


def _at_copy(one: Range, turn: int) -> Range:
    if not one.copies:
        return one
    return one._replace(address=one.copies[turn % len(one.copies)], leader=one.address)
