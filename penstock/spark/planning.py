"""Cuts what a batch reads into Spark partitions: few small queues are packed together, big ones are split.

Pure. A partition costs Spark about 20 ms however few its rows are, so a batch of few rows is one partition. A queue's
offsets stay in order within a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.errors import OffsetOutOfRange
from penstock.spark.offsets import Extents, Places, QueueKey, check_not_lost

_log = logging.getLogger(__name__)


class Range(NamedTuple):
    """Offsets ``[start, end)`` of one queue, and where its broker is."""

    address: str
    topic: str
    broker: str
    queue: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


class Shape(NamedTuple):
    """How partitions are to be cut: rows that make a partition worth its cost, and the least and most of them."""

    target_rows: int
    partitions_min: int
    partitions_max: int


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
                if fail_on_data_loss:
                    raise
                _log.warning("%s", error.message)
            places[key] = extent.end
    return places


def ranges_between(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], extents: Extents, *, fail_on_data_loss: bool
) -> list[Range]:
    """The non-empty ranges of a batch, in the order of their queues.

    A queue that only ``end`` knows is new: it is read from its first offset ever, 0. Offsets that retention removed
    raise ``OffsetOutOfRange``; with ``fail_on_data_loss`` off they are passed over with a warning.
    """
    found: list[Range] = []
    for key in sorted(end):
        first, last = start.get(key, 0), end[key]
        extent = extents.get(key)
        try:
            check_not_lost(key, first, last, extent)
        except OffsetOutOfRange as error:
            if fail_on_data_loss:
                raise
            _log.warning("%s", error.message)
        if extent is None:
            continue
        first, last = max(first, extent.min), min(last, extent.end)
        if first < last:
            found.append(Range(extent.address, key.topic, key.broker, key.queue, first, last))
    return found


def pack(ranges: Sequence[Range], shape: Shape) -> list[tuple[Range, ...]]:
    """The partitions: all of about the same number of rows, each at least ``target_rows`` where there are so many."""
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
