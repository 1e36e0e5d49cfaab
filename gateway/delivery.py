"""What one subscriber is sent for one stored message, encoded once for all subscribers that are sent the same bytes.

A ``Blob`` is a PUBLISH packet with a gap for the packet id. Which blob a session gets is fixed by its protocol
level, the delivered QoS, the RETAIN flag and its subscription identifiers; equal choices share one blob, kept at
the ``Arrival``. A ``Run`` is the blobs of several consecutive messages with packet ids already in place, made from
the queue offsets, so that a fan-out hands the very same bytes to every subscriber at the head of the queue.

Nothing here knows sessions or queues. Invariant: DUP is 0 in every blob (MQTT-3.3.1-3); only ``packet(dup=True)``, used
for a resend, sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.envelope import NEVER, Arrival
from gateway.mqtt.codec import publish_head
from gateway.mqtt.primitives import encode_text, encode_variable_integer

PACKET_ID_MAX: Final = 65_535
_MESSAGE_EXPIRY: Final = b"\x02"
_SUBSCRIPTION_ID: Final = b"\x0b"
_USER_PROPERTY: Final = b"\x26"


class Variant(NamedTuple):
    """What the bytes of a delivery depend on besides the message."""

    is_v5: bool
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    shows_place: bool = False


class Blob:
    """An encoded PUBLISH, in two parts around its packet id (QoS 0: the first part is all of it)."""

    __slots__ = ("arrival", "head", "qos", "tail", "variant", "weight")

    def __init__(self, arrival: Arrival, variant: Variant, head: bytes, tail: bytes) -> None:
        self.arrival = arrival
        self.variant = variant
        self.qos = variant.qos
        self.head = head
        self.tail = tail
        self.weight = len(head) + len(tail)
        """What it holds in memory, in bytes, roughly."""

    @property
    def size(self) -> int:
        """Bytes of the packet on the wire."""
        return self.weight + (2 if self.qos else 0)

    def packet(self, packet_id: int, *, dup: bool = False) -> bytes:
        """The packet's bytes; the id counts for QoS 1 and 2 only."""
        if not self.qos:
            return self.head
        head = bytes((self.head[0] | 0x08,)) + self.head[1:] if dup else self.head
        return b"".join((head, packet_id.to_bytes(2, "big"), self.tail))


def _properties(arrival: Arrival, variant: Variant, now_ms: int) -> bytes:
    parts = []
    if arrival.expires_ms != NEVER:  # what is left of the interval (MQTT-3.3.2-6)
        left_s = max(0, (arrival.expires_ms - now_ms + 999) // 1000)
        parts.append(_MESSAGE_EXPIRY + left_s.to_bytes(4, "big"))
    for identifier in variant.identifiers:
        parts.append(_SUBSCRIPTION_ID + encode_variable_integer(identifier))
    if variant.shows_place:
        parts += [
            _user_property("penstock-queue", arrival.queue),
            _user_property("penstock-offset", str(arrival.queue_offset)),
            _user_property("penstock-time", str(arrival.stored_ms)),
        ]
    parts.append(arrival.application)
    section = b"".join(parts)
    return encode_variable_integer(len(section)) + section


def _user_property(name: str, value: str) -> bytes:
    return _USER_PROPERTY + encode_text(name) + encode_text(value)


# Messages of one topic and size have the same head.
_head: Final = lru_cache(maxsize=8192)(publish_head)


def _encode(arrival: Arrival, variant: Variant, now_ms: int) -> Blob:
    is_v5, qos, retain = variant[:3]
    tail = _properties(arrival, variant, now_ms) + arrival.payload if is_v5 else arrival.payload
    head = _head(arrival.name_bytes, len(tail), qos, retain)
    return Blob(arrival, variant, head, tail) if qos else Blob(arrival, variant, head + tail, b"")


def blob(arrival: Arrival, variant: Variant, now_ms: int) -> Blob:
    """The shared blob of a message for a variant. One with an expiry interval for MQTT 5 is made afresh each time."""
    if variant.is_v5 and arrival.expires_ms != NEVER:
        return _encode(arrival, variant, now_ms)
    if arrival.blobs is None:
        arrival.blobs = {}
    made = arrival.blobs.get(variant)
    if made is None:
        made = arrival.blobs[variant] = _encode(arrival, variant, now_ms)
    assert isinstance(made, Blob)
    return made


def is_expired(arrival: Arrival, now_ms: int) -> bool:
    """Whether the message may no longer be sent to anybody (MQTT-3.3.2-5)."""
    return arrival.expires_ms != NEVER and now_ms >= arrival.expires_ms


class AliasedRun(NamedTuple):
    """A run for clients that take so many aliases (``gateway/aliases.py``).

    ``defines``: number -> name of every alias in it; ``naming``: the packets, the first of each topic with its name and
    its number, the others with the number; ``brief``: the packets for those who know all numbers; ``largest``: bytes of
    the largest packet, or a few more.
    """

    defines: dict[int, bytes]
    naming: bytes
    brief: bytes
    largest: int


class Run:
    """Consecutive messages as one piece of bytes for every subscriber of one kind.

    Attributes:
        data: the packets, packet ids in place.
        in_flight: packet id -> blob of those with QoS 1 or 2.
        qos: the highest QoS among them.
        senders: client ids of the publishers (whoever is among them and wants no local copies needs another way).
        weight: what those in flight hold in memory, roughly.
        largest: bytes of the largest packet, at most two too many.
        expiring: whether any message expires: then the bytes are good for this moment only.
        blobs: packet id and blob of each message.
        aliased: forms with topic aliases, by how many of them a client takes.
    """

    __slots__ = ("aliased", "blobs", "count", "data", "expiring", "in_flight", "largest", "qos", "senders", "weight")

    def __init__(
        self, batch: Sequence[Arrival], is_v5: bool, granted: int, as_published: bool, identifier: int, now_ms: int
    ) -> None:
        identifiers = (identifier,) if identifier else ()
        parts: list[bytes] = []
        blobs: list[tuple[int, Blob]] = []
        in_flight: dict[int, Blob] = {}
        variant = Variant(is_v5, 0, False, identifiers)
        before: Arrival | None = None  # the one before, mostly of the same device and size
        made: Blob | None = None
        largest = weight = highest = 0
        for arrival in batch:
            if before is None or before.qos != arrival.qos or before.retain != arrival.retain:
                variant = Variant(is_v5, min(arrival.qos, granted), as_published and arrival.retain, identifiers)
                before = made = None
            if (
                made is not None
                and made.qos
                and not is_v5
                and before is not None
                and before.heading is arrival.heading
                and len(before.payload) == len(arrival.payload)
            ):
                made = Blob(arrival, variant, made.head, arrival.payload)
            else:
                made = _encode(arrival, variant, now_ms)
            before = arrival
            packet_id = arrival.offset % PACKET_ID_MAX + 1
            blobs.append((packet_id, made))
            if made.qos:
                in_flight[packet_id] = made
                parts += (made.head, packet_id.to_bytes(2, "big"), made.tail)
                weight += made.weight
                highest = max(highest, made.qos)
            else:
                parts.append(made.head)
            if made.weight > largest:
                largest = made.weight
        self.data = b"".join(parts)
        self.blobs = blobs
        self.aliased: dict[int, AliasedRun] = {}
        self.in_flight = in_flight
        self.qos = highest
        self.weight = weight
        self.largest = largest + 2
        self.count = len(batch)
        headings = {id(arrival.heading): arrival.heading for arrival in batch}.values()
        self.senders = {heading.sender for heading in headings}
        self.expiring = any([heading.expiry_s != NEVER for heading in headings])
