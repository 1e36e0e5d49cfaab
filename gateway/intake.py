"""The straight way for the commonest packets: runs of plain PUBLISH and of PUBACK in one chunk, without a packet
object each.

A plain PUBLISH has QoS 0 or 1, no DUP, no RETAIN, a length of at most two bytes, no MQTT 5 properties, and a name
that its client has used before, so that everything about it is known but payload and id. Whatever differs in any
way is left to the codec, whose word is final: this module never judges a packet, it only stops in front of it. That
both ways give the same outcome is kept by tests/gateway/test_intake.py. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from gateway.rates import Pace
from gateway.tallies import Tally
from gateway.upstream import Lane, Publisher, Route, Ticket, Upstream
from penstock.message import encode_record

_QOS0: Final = 0x30
_QOS1: Final = 0x32
_PUBACK: Final = 0x4002
_NO_ID: Final = b"@\x02\x00\x00"
_NONE: Final = b""
PARTIAL_BYTES_MAX: Final = 4096


class Sender(Publisher, Protocol):
    """A publisher whose packets are counted (``gateway.device.Device``). ``pace``: what it may still send, if that is
    limited."""

    tally: Tally
    pace: Pace | None


def take_publishes(
    device: Sender, routes: dict[bytes, Route], is_v5: bool, chunk: bytes, upstream: Upstream, room: int
) -> tuple[int, int]:
    """Takes the plain PUBLISH packets at a chunk's beginning that go to one broker; at most ``room`` have QoS 1.

    Returns the place after them and how many of QoS 1 there were.
    """
    at, end = 0, len(chunk)
    name, route, lane = _NONE, None, None
    records: list[bytes] = []
    marks: list[bytes] = []
    now_ms = upstream.rounds.now_ms
    while end - at > 4:
        first, length, start = chunk[at], chunk[at + 1], at + 2
        if first != _QOS1 and first != _QOS0:
            break
        if length > 127:
            more = chunk[start]
            if more > 127 or more == 0:
                break
            length += (more - 1) << 7
            start += 1
        stop = start + length
        if stop > end:
            break
        body = start + 2 + (chunk[start] << 8) + chunk[start + 1]
        found = chunk[start + 2 : body]
        if found != name or route is None:
            route = routes.get(found)
            if route is None or (lane is not None and route.lane() is not lane):
                break
            name, lane = found, route.lane()
        mark = _NONE
        if first == _QOS1:
            mark = b"@\x02" + chunk[body : body + 2]
            body += 2
        if is_v5:  # no properties: their length is the one byte 0
            if body >= stop or chunk[body]:
                break
            body += 1
        if lane is None or body > stop or mark == _NO_ID:
            break
        if mark:
            if not room:
                break
            room -= 1
        records.append(
            encode_record(route.topic_bytes, chunk[body:stop], route.properties, flag=(first >> 1) & 1, born_ms=now_ms)
        )
        marks.append(mark)
        at = stop
    if lane is not None and records:
        _hand_over(device, upstream, lane, records, marks)
    return at, len(marks) - marks.count(_NONE)


def _hand_over(device: Sender, upstream: Upstream, lane: Lane, records: list[bytes], marks: list[bytes]) -> None:
    start = len(lane.records)
    lane.records += records
    lane.marks += marks
    size = sum(map(len, records))
    lane.tickets.append(Ticket(device, start, start + len(records), size, False))
    device.unstored += size
    device.tally.packets_in += len(records)
    device.tally.publications_in += len(records)
    if device.pace is not None:
        device.pace.published += len(records)
    upstream.grown(lane, size)


def is_partial_publish(rest: bytes) -> bool:
    """Whether a chunk's rest may be the beginning of a plain PUBLISH, short enough to be kept as it is."""
    return len(rest) < PARTIAL_BYTES_MAX and rest[0] in (_QOS0, _QOS1) and _is_incomplete(rest)


def _is_incomplete(rest: bytes) -> bool:
    if len(rest) < 4:
        return len(rest) < 3 or rest[1] < 128 or rest[2] < 128
    if rest[1] < 128:
        return len(rest) < 2 + rest[1]
    return 0 < rest[2] < 128 and len(rest) < 3 + rest[1] + ((rest[2] - 1) << 7)


def plain_pubacks(chunk: bytes) -> tuple[int, ...] | None:
    """The ids of a chunk that is nothing but PUBACKs without a reason code and with ids; ``None`` for any other."""
    count = len(chunk) // 4
    if chunk[0] != 0x40 or len(chunk) != 4 * count:
        return None
    words = struct.unpack(f">{2 * count}H", chunk)
    if words[::2].count(_PUBACK) != count:
        return None
    ids = words[1::2]
    return None if 0 in ids else ids
