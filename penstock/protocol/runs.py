"""Runs of messages: how gateways and producers hand messages to a broker. docs/formats/runs.md is the page.

A sender repeats itself: topic, properties and often the size of the body stay, only the body changes. A *run* says
once what its messages have in common, then gives their bodies; the broker writes the records. What may differ beside
the bodies is a unique id that counts: the run has that of its first message.

Pure and total: any bytes give runs or ``InvalidRequest``, and the records that they stand for are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from fastcrc.crc32 import iscsi, iso_hdlc

from penstock.errors import InvalidMessage, InvalidRequest
from penstock.protocol.message import ANY_QUEUE, BODY_AT, RECORD_HEAD, RECORD_MAGIC, UNIQUE_KEY

RUN_HEAD: Final = struct.Struct(">IIQII")
"""Bytes of the tail, application flag, born time, number of bodies, bytes of each body."""
COUNTS: Final = 1 << 31
"""Set in the number of the tail's bytes: the unique ids of the run's messages count."""
FLAGGED: Final = 1 << 30
"""The same: four bytes of a system flag follow the head."""
DIGITS: Final = 12
"""Number of hexadecimal digits at the end of a unique id that count."""
RECORDS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of the records that a batch of runs stands for."""


_UNIQUE: Final = UNIQUE_KEY.encode() + b"\x01"
_FURTHER: Final = b"\x02" + _UNIQUE
HEXADECIMAL: Final = frozenset(b"0123456789abcdef")
_NO_HOST: Final = bytes(8)
UNUSUAL: Final = struct.Struct(">I8sIQ")
"""System flag, born host, reconsume times, prepared: what is in ``Run.unusual``."""
_FLAG_BYTES: Final = 4
"""The system flag in it."""
NOWHERE: Final = -1
SOMEWHERE: Final = -2
"""Positions of a run that is not stored, and of one of which it is not known where it is stored."""


class Run:
    """Messages that have all in common but the bytes of their bodies, and unique ids that count.

    Attributes:
        tail: the bytes behind the body of the first record (``message.record_tail``).
        counts: whether the tails differ in their last ``DIGITS`` bytes, the end of a unique id, which are one more from
            message to message. Else all have the same tail.
        flag: application flag of each.
        born_ms: wall-clock milliseconds since 1970 at the sender.
        bodies: at least one, all of one size.
        size: bytes of the records that they become.
        unusual: the sender's fields of a record's head that are zero almost everywhere: system flag, born host,
            reconsume times, prepared; empty where they are zero.

    The broker that stores it notes the place on it: its messages follow each other in the log and in each of their
    queues. One object for both, because every publication makes one.

        position: log position of the first one's frame, ``NOWHERE`` as long as it is not stored.
        step: bytes of each frame, and so from one to the next.
        number: that of the first one's id, as far as it was looked at.
        queue_id, offset: their topic queue (``ANY_QUEUE``: the broker chooses), and the place of the first one in it.
        stored_ms: wall-clock milliseconds since 1970 at which they were stored.
    """

    __slots__ = (
        "bodies",
        "born_ms",
        "counts",
        "flag",
        "number",
        "offset",
        "position",
        "queue_id",
        "size",
        "step",
        "stored_ms",
        "tail",
        "unusual",
    )

    def __init__(self, tail: bytes, flag: int, born_ms: int, bodies: list[bytes], counts: bool = False) -> None:
        self.tail = tail
        self.counts = counts
        self.flag = flag
        self.born_ms = born_ms
        self.bodies = bodies
        self.size = len(bodies) * (BODY_AT + len(bodies[0]) + len(tail))
        self.unusual = b""
        self.number = NOWHERE
        self.queue_id = ANY_QUEUE
        self.position = self.offset = NOWHERE
        self.step = self.stored_ms = 0

    def tail_of(self, number: int) -> bytes:
        """The tail of message ``number``."""
        return counted(self.tail, number) if self.counts and number else self.tail

    def of(self, bodies: list[bytes], number: int = 0) -> Run:
        """The same with other bodies, stored nowhere, of which the first is that of message ``number``."""
        run = Run(self.tail_of(number), self.flag, self.born_ms, bodies, self.counts)
        run.number = self.number + number if self.number >= 0 else NOWHERE
        run.queue_id = self.queue_id
        run.unusual = self.unusual
        return run

    def placed(self, position: int, step: int, queue_id: int, offset: int, stored_ms: int) -> Run:
        """This run, stored there."""
        self.position = position
        self.step = step
        self.queue_id = queue_id
        self.offset = offset
        self.stored_ms = stored_ms
        return self

    def part(self, start: int, stop: int) -> Run:
        """The stored messages from number ``start`` to before ``stop``; it keeps nothing of the others."""
        position, offset = self.position + start * self.step, self.offset + start
        part = self.of(self.bodies[start:stop], start)
        return part.placed(position, self.step, self.queue_id, offset, self.stored_ms)


def counted(tail: bytes, more: int) -> bytes:
    """A tail with a number added to its last digits."""
    return tail[:-DIGITS] + b"%0*x" % (DIGITS, int(tail[-DIGITS:], 16) + more)


def check_counts(tail: bytes, properties_at: int, count: int) -> int:
    """The beginning of the unique id in a tail whose properties begin there and end with an id that can count for this
    many messages. Raises ``InvalidMessage`` if they do not."""
    last_at = tail.rfind(b"\x02", properties_at) + 1 or properties_at
    first_at = properties_at if tail.startswith(_UNIQUE, properties_at) else tail.find(_FURTHER, properties_at) + 1
    id_at = last_at + len(_UNIQUE)
    if first_at != last_at or id_at + DIGITS > len(tail) or b" " in tail[id_at:]:
        raise InvalidMessage(f"an id that counts is the last property, {UNIQUE_KEY}, and one word")
    check_digits(tail, count)
    return id_at


def check_digits(tail: bytes, count: int) -> int:
    """The number at the end of a tail. Raises ``InvalidMessage`` unless this many messages can count on from it."""
    digits = tail[-DIGITS:]
    number = int(digits, 16) if HEXADECIMAL.issuperset(digits) else -1
    if number < 0 or number + count > 1 << 4 * DIGITS:
        raise InvalidMessage(f"an id that counts ends with {DIGITS} hexadecimal digits, enough for {count} messages")
    return number


def run_of(record: bytes) -> Run:
    """The run of a single record, of which it is known that its lengths add up: it is that record again when it is
    stored. ``queue_id`` is the record's."""
    head = RECORD_HEAD.unpack_from(record)
    body_bytes = head[14]
    tail_at = BODY_AT + body_bytes
    run = Run(record[tail_at:], head[4], head[8], [record[BODY_AT:tail_at]])
    run.queue_id = head[3]
    if head[7] or head[12] or head[13] or head[9] != _NO_HOST:
        run.unusual = UNUSUAL.pack(head[7], head[9], head[12], head[13])
    return run


def record_of(run: Run) -> bytes:
    """The record of a run's first message."""
    body, tail = run.bodies[0], run.tail
    system_flag, born_host, reconsumed, prepared = UNUSUAL.unpack(run.unusual or bytes(UNUSUAL.size))
    head = RECORD_HEAD.pack(
        BODY_AT + len(body) + len(tail),
        RECORD_MAGIC,
        iso_hdlc(body) & 0x7FFFFFFF,
        run.queue_id,
        run.flag,
        0,
        0,
        system_flag,
        run.born_ms,
        born_host,
        0,
        _NO_HOST,
        reconsumed,
        prepared,
        len(body),
    )
    return b"".join((head, body, tail))


checksum_of: Final[Callable[[bytes], int]] = iscsi
"""CRC-32C of a batch of runs: what a request carries beside it."""


def encode_runs(runs: Sequence[Run]) -> bytes:
    """The runs end to end."""
    pack = RUN_HEAD.pack
    parts: list[bytes] = []
    for run in runs:
        tail_bytes = len(run.tail) | COUNTS if run.counts else len(run.tail)
        system_flag = run.unusual[:_FLAG_BYTES]
        if system_flag:
            tail_bytes |= FLAGGED
        parts.append(pack(tail_bytes, run.flag, run.born_ms, len(run.bodies), len(run.bodies[0])))
        parts.append(system_flag)
        parts.append(run.tail)
        parts += run.bodies
    return b"".join(parts)


def decode_runs(data: bytes) -> list[Run]:
    """The runs in ``data``. Raises ``InvalidRequest`` where it is not exactly some runs, or they stand for too much."""
    runs: list[Run] = []
    unpack, at, end, records = RUN_HEAD.unpack_from, 0, len(data), 0
    while at < end:
        if at + RUN_HEAD.size > end:
            raise InvalidRequest(f"{end - at} bytes behind the last run; nothing was stored")
        tail_bytes, flag, born_ms, count, size = unpack(data, at)
        counts, unusual = False, b""
        tail_at = at + RUN_HEAD.size
        if tail_bytes >= FLAGGED:
            counts = tail_bytes & COUNTS != 0
            if tail_bytes & FLAGGED:
                unusual = data[tail_at : tail_at + _FLAG_BYTES] + bytes(UNUSUAL.size - _FLAG_BYTES)
                tail_at += _FLAG_BYTES
            tail_bytes &= FLAGGED - 1
        bodies_at = tail_at + tail_bytes
        at = bodies_at + count * size
        records += count * (BODY_AT + size + tail_bytes)
        if at > end or not count or records > RECORDS_BYTES_MAX:
            raise InvalidRequest(
                f"a run of {count} bodies of {size} bytes with a tail of {tail_bytes} does not fit; nothing was stored"
            )
        if count == 1:
            bodies = [data[bodies_at:at]]
        elif size:
            bodies = [data[start : start + size] for start in range(bodies_at, at, size)]
        else:
            bodies = [b""] * count
        run = Run(data[tail_at:bodies_at], flag, born_ms, bodies, counts)
        run.unusual = unusual
        runs.append(run)
    return runs


def topics_of_runs(data: bytes) -> list[tuple[bytes, int, int, int]]:
    """For each run in ``data`` its topic as bytes, its number of messages, and its bounds. Looks where
    ``decode_runs`` looks. Raises ``InvalidRequest``."""
    found: list[tuple[bytes, int, int, int]] = []
    unpack, at, end = RUN_HEAD.unpack_from, 0, len(data)
    while at < end:
        if at + RUN_HEAD.size > end:
            raise InvalidRequest(f"{end - at} bytes behind the last run; nothing was stored")
        tail_bytes, _, _, count, size = unpack(data, at)
        tail_at = at + RUN_HEAD.size
        if tail_bytes & FLAGGED:
            tail_at += _FLAG_BYTES
        tail_bytes &= FLAGGED - 1
        tail_end = tail_at + tail_bytes
        run_end = tail_end + count * size
        if run_end > end or not count:
            raise InvalidRequest("a run that does not fit; nothing was stored")
        topic_end = tail_at + 2 + int.from_bytes(data[tail_at : tail_at + 2], "big")
        found.append((data[tail_at + 2 : min(topic_end, tail_end)], count, at, run_end))
        at = run_end
    return found


def topics_of_records(data: bytes) -> list[bytes]:
    """The topic, as bytes, of each of the records in ``data``, end to end. Raises ``InvalidRequest``."""
    found: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if at + BODY_AT + 2 > end:
            raise InvalidRequest(f"{end - at} bytes behind the last record; nothing was stored")
        head = RECORD_HEAD.unpack_from(data, at)
        size, topic_at = head[0], at + BODY_AT + head[14]
        if size < BODY_AT + 2 or at + size > end or topic_at + 2 > at + size:
            raise InvalidRequest("a record whose lengths do not add up; nothing was stored")
        topic_end = topic_at + 2 + int.from_bytes(data[topic_at : topic_at + 2], "big")
        found.append(data[topic_at + 2 : min(topic_end, at + size)])
        at += size
    return found


def flagged(system_flag: int) -> bytes:
    """The ``unusual`` of a run that has a system flag, and nothing else."""
    return UNUSUAL.pack(system_flag, _NO_HOST, 0, 0) if system_flag else b""


def system_flag_of(run: Run) -> int:
    """The system flag of a run's messages."""
    return int.from_bytes(run.unusual[:_FLAG_BYTES], "big")
