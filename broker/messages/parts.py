"""A request whose messages do not fit one segment, cut into parts that do.

A message that no segment holds is a part of its own. A batch is promised nothing as a whole: each of its messages is
stored or refused on its own, in order. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.store.run_frames import frame_bytes
from penstock.errors import InvalidRequest
from penstock.protocol.message import FRAME_HEAD_BYTES, RECORD_BYTES_MIN
from penstock.protocol.runs import Run


def records_of(body: bytes | memoryview, count: int) -> list[bytes]:
    """The records that stand end to end in ``body``, ``count`` of them; what is in one is not checked. Raises
    ``InvalidRequest``."""
    data, at = bytes(body), 0
    records: list[bytes] = []
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "big")
        if size < RECORD_BYTES_MIN or at + size > len(data):
            raise InvalidRequest(f"{len(data)} bytes are not {count} records; nothing was stored")
        records.append(data[at : at + size])
        at += size
    if at != len(data):
        raise InvalidRequest(f"{len(data) - at} bytes behind the last of {count} records; nothing was stored")
    return records


class RecordsPart(NamedTuple):
    """Records of an append. ``first``: the place of the first one in the request. ``size``: bytes of their frames."""

    first: int
    messages: int
    body: bytes
    size: int


class RunsPart(NamedTuple):
    """Runs of an append. ``first``: the place of their first message in the request. ``size``: bytes of their
    frames."""

    first: int
    messages: int
    runs: list[Run]
    size: int


def cut_records(body: bytes, count: int, most: int) -> list[RecordsPart]:
    """Parts of at most ``most`` bytes, or of one record. Raises ``InvalidRequest`` where the body is not cut into that
    many records: before any of them is stored."""
    parts: list[RecordsPart] = []
    first = begin = at = size = 0
    for number in range(count):
        record_bytes = int.from_bytes(body[at : at + 4], "big")
        if record_bytes < RECORD_BYTES_MIN or at + record_bytes > len(body):
            raise InvalidRequest(f"{len(body)} bytes are not {count} records; nothing was stored")
        frame = FRAME_HEAD_BYTES + record_bytes
        if number > first and size + frame > most:
            parts.append(RecordsPart(first, number - first, body[begin:at], size))
            first, begin, size = number, at, 0
        size += frame
        at += record_bytes
    if at != len(body):
        raise InvalidRequest(f"{len(body) - at} bytes behind the last of {count} records; nothing was stored")
    parts.append(RecordsPart(first, count - first, body[begin:], size))
    return parts


def cut_runs(runs: list[Run], most: int) -> list[RunsPart]:
    """Parts of at most ``most`` bytes, or of one message."""
    parts: list[RunsPart] = []
    first = number = size = 0
    gathered: list[Run] = []
    for piece, frame in _pieces(runs, most):
        more = frame * len(piece.bodies)
        if gathered and size + more > most:
            parts.append(RunsPart(first, number - first, gathered, size))
            first, gathered, size = number, [], 0
        gathered.append(piece)
        size += more
        number += len(piece.bodies)
    parts.append(RunsPart(first, number - first, gathered, size))
    return parts


def _pieces(runs: list[Run], most: int) -> Iterator[tuple[Run, int]]:
    """Runs of at most ``most`` bytes, or of one message, and the size of each frame."""
    for run in runs:
        frame = frame_bytes(run)
        step = max(1, most // frame)
        if len(run.bodies) <= step:
            yield run, frame
            continue
        for at in range(0, len(run.bodies), step):
            yield run.of(run.bodies[at : at + step]), frame
