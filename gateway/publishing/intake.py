"""The fast path for the commonest packets: runs of plain PUBLISH and of PUBACK in one chunk, without a packet object
each.

A plain PUBLISH has QoS 0 or 1, no DUP, no RETAIN, a length of at most two bytes, no MQTT 5 properties, and a name that
its client has used before. Any other packet is left to the codec: this module never judges a packet, it only stops in
front of it. tests/gateway/publishing/test_intake.py compares the outcomes of both ways. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from mypy_extensions import mypyc_attr

from gateway.limits.counters import ListenerCounters
from gateway.limits.rates import Pace
from gateway.publishing.broker_batch import BrokerBatch, NameRoute, Publisher
from gateway.publishing.upstream import Upstream
from penstock.protocol.message import BODY_AT
from penstock.protocol.runs import Run

_QOS0: Final = 0x30
_QOS1: Final = 0x32
_PUBACK: Final = 0x4002
_PUBACKS: Final = np.arange(_PUBACK << 16 | 1, _PUBACK + 1 << 16, dtype=">u4").tobytes()
"""The PUBACK of every packet id, in their order."""
_NO_ID: Final = b"\x00\x00"
_NONE: Final = b""
_HAND_OVER_BYTES: Final = 1 << 20
"""Bytes of records that are handed over at once; then there is room in the batch again. A run has no more either:
many short packets are much longer as records, with the name and the client's id in each."""
PARTIAL_BYTES_MAX: Final = 4096


@mypyc_attr(allow_interpreted_subclasses=True)
class Sender(Publisher):
    """A publisher whose packets are counted (``gateway.connections.device.Device``).

    Attributes:
        tally: what goes through its listener.
        pace: what it may still send, if that is limited.
        route: of its last plain PUBLISH, if that is known: mostly the next one has the same.
    """

    __slots__ = ("pace", "route", "tally")
    tally: ListenerCounters
    pace: Pace | None
    route: NameRoute | None


def take_publishes(
    device: Sender,
    routes: dict[bytes, NameRoute],
    is_v5: bool,
    chunk: bytes,
    upstream: Upstream,
    most: int,
    bytes_max: int,
) -> tuple[int, int]:
    """Takes the plain PUBLISH packets at a chunk's beginning that go to one broker; at most ``most`` have QoS 1, each
    has at most ``bytes_max`` bytes.

    Returns the place after them and how many of QoS 1 there were.
    """
    at, end, size, begin, acknowledged = 0, len(chunk), 0, 0, 0
    route, lane, now_ms, sequence = device.route, None, upstream.rounds.now_ms, device.sequence
    while end - at > 4 and size < _HAND_OVER_BYTES:
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
        if stop > end or stop - at > bytes_max:
            break
        body = start + 2 + (chunk[start] << 8) + chunk[start + 1]
        found = chunk[start + 2 : body]
        if route is None or found != route.raw_name:
            route = routes.get(found)
            if route is None:
                break
            device.route = route
        goes_to = route.lane()
        if goes_to is None or (lane is not None and goes_to is not lane):
            break
        if lane is None:
            lane, begin = goes_to, len(goes_to.marks)
        id_at, packet_id = body, _NONE
        if first == _QOS1:
            packet_id = chunk[body : body + 2]
            body += 2
        if is_v5:  # no properties: their length is the one byte 0
            if body >= stop or chunk[body]:
                break
            body += 1
        if body > stop or packet_id == _NO_ID or acknowledged + len(packet_id) // 2 > most:
            break
        bodies = [chunk[body:stop]]
        lane.marks.append(b"@\x02" + packet_id if packet_id else _NONE)
        room = min(most - acknowledged if packet_id else end, _HAND_OVER_BYTES // (BODY_AT + len(route.tail)) + 1)
        at = stop if stop == end else _take_same(chunk, at, stop, id_at, body, is_v5, room, lane.marks, bodies)
        lane.firsts.append(sequence + acknowledged)
        acknowledged += len(bodies) if packet_id else 0
        run = Run(route.tail, (first >> 1) & 1, now_ms, bodies)
        lane.runs.append(run)
        lane.devices.append(device)
        size += run.size
    if lane is not None and at:
        _hand_over(device, upstream, lane, len(lane.marks) - begin, size, acknowledged)
    return at, acknowledged


def _take_same(
    chunk: bytes,
    start: int,
    at: int,
    id_at: int,
    body_at: int,
    is_v5: bool,
    room: int,
    marks: list[bytes],
    bodies: list[bytes],
) -> int:
    """Takes the packets from ``at`` on that have the fixed header and the name, and so the size, of the one from
    ``start`` to ``at``, whose id and body are at these places; until there are ``room`` bodies. Returns the place after
    them."""
    head, head_bytes, step = chunk[start:id_at], id_at - start, at - start
    has_id = body_at - id_at >= 2
    id_at, body_at = id_at - start, body_at - start
    end, packet_id = len(chunk), _NONE
    while at + step <= end and chunk[at : at + head_bytes] == head and len(bodies) < room:
        if is_v5 and chunk[at + body_at - 1]:
            break
        if has_id:
            packet_id = chunk[at + id_at : at + id_at + 2]
            if packet_id == _NO_ID:
                break
            marks.append(b"@\x02" + packet_id)
        else:
            marks.append(_NONE)
        bodies.append(chunk[at + body_at : at + step])
        at += step
    return at


def _hand_over(device: Sender, upstream: Upstream, lane: BrokerBatch, count: int, size: int, acknowledged: int) -> None:
    """The last ``count`` messages in the lane are this device's, ``size`` bytes of records, with a number of QoS 1
    messages."""
    device.sequence += acknowledged
    device.unstored += size
    tally, pace = device.tally, device.pace
    tally.packets_in += count
    tally.publications_in += count
    if pace is not None:
        pace.published += count
    upstream.grown(lane, size)


def is_partial_publish(rest: bytes, bytes_max: int) -> bool:
    """Whether a chunk's rest may be the beginning of a plain PUBLISH of at most ``bytes_max`` bytes, short enough to be
    kept as it is."""
    return len(rest) < PARTIAL_BYTES_MAX and rest[0] in (_QOS0, _QOS1) and _is_incomplete(rest, bytes_max)


def _is_incomplete(rest: bytes, bytes_max: int) -> bool:
    if len(rest) < 3:
        return True
    if rest[1] < 128:
        return len(rest) < 2 + rest[1]
    size = 3 + rest[1] + ((rest[2] - 1) << 7)
    return 0 < rest[2] < 128 and len(rest) < size <= bytes_max


def plain_pubacks(chunk: bytes) -> Sequence[int] | None:
    """The ids of a chunk that is nothing but PUBACKs without a reason code and with ids; ``None`` for any other."""
    count = len(chunk) // 4
    if chunk[0] != 0x40 or len(chunk) != 4 * count:
        return None
    first = chunk[2] << 8 | chunk[3]
    if count == 1:
        return (first,) if chunk[1] == 0x02 and first else None
    if first and _PUBACKS.startswith(chunk, 4 * first - 4):  # mostly they are for messages that were sent together
        return range(first, first + count)
    words = struct.unpack(f">{2 * count}H", chunk)
    if words[::2].count(_PUBACK) != count:
        return None
    ids = words[1::2]
    return None if 0 in ids else ids
