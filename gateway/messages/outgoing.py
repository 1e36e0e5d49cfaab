"""What one subscriber is sent for one stored message, encoded once for all subscribers that are sent the same bytes.

A ``Blob`` is a PUBLISH packet with a gap for the packet id. Which blob a session gets is fixed by its protocol level,
the delivered QoS, the RETAIN flag and its subscription identifiers; equal choices share one blob, kept at the
``Arrival``. A ``PacketRun`` is the packets of a whole batch with packet ids already in place, made from the queue
offsets, so that a fan-out hands the very same bytes to every subscriber at the head of the queue. Of an even batch
(``gateway/messages/batch.py``) the packets are put together without a blob each; a blob is made on request.

Nothing here knows sessions or queues. Invariant: DUP is 0 in every blob (MQTT-3.3.1-3); only ``packet(dup=True)``, used
for a resend, sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from gateway.messages.batch import Batch, Stretch, column
from gateway.messages.envelope import Arrival, Heading
from gateway.mqtt.codec import publish_head
from gateway.mqtt.primitives import encode_text, encode_variable_integer
from penstock.protocol.message import NEVER

PACKET_ID_MAX: Final = 65_535
_MESSAGE_EXPIRY: Final = b"\x02"
_SUBSCRIPTION_ID: Final = b"\x0b"
_USER_PROPERTY: Final = b"\x26"


class Variant:
    """Form of a delivery: what its bytes depend on besides the message."""

    __slots__ = ("identifiers", "is_v5", "qos", "retain", "shows_place")

    def __init__(
        self, is_v5: bool, qos: int, retain: bool, identifiers: tuple[int, ...] = (), shows_place: bool = False
    ) -> None:
        self.is_v5 = is_v5
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.shows_place = shows_place

    @property
    def key(self) -> tuple[bool, int, bool, tuple[int, ...], bool]:
        """All of it, to be looked up by."""
        return (self.is_v5, self.qos, self.retain, self.identifiers, self.shows_place)


LIGHT_BYTES: Final = 4096
"""A message in flight that is larger is held without its payload: what is sent again, on a later connection, is read
from the log."""


class InFlight:
    """Part of a message that a session holds, of one with QoS 1 or 2 that is on its way. ``weight``: bytes of it,
    roughly."""

    __slots__ = ("qos", "weight")

    def __init__(self, qos: int, weight: int) -> None:
        self.qos = qos
        self.weight = weight

    def blob(self, packet_id: int) -> Blob:
        """The packet that was sent with this id."""
        raise NotImplementedError

    def message(self, packet_id: int) -> Arrival:
        """The message in it."""
        raise NotImplementedError


class Blob(InFlight):
    """An encoded PUBLISH, in two parts around its packet id (QoS 0: the first part is all of it)."""

    __slots__ = ("arrival", "head", "tail", "variant")

    def __init__(self, arrival: Arrival, variant: Variant, head: bytes, tail: bytes) -> None:
        super().__init__(variant.qos, len(head) + len(tail))
        self.arrival = arrival
        self.variant = variant
        self.head = head
        self.tail = tail

    def blob(self, packet_id: int) -> Blob:
        """Itself."""
        return self

    def message(self, packet_id: int) -> Arrival:
        """Its own."""
        return self.arrival

    def sent(self) -> Blob:
        """What is held of it from now on: itself, or if it is large, where it is and as what it was sent."""
        return self if self.weight <= LIGHT_BYTES else self._at(self.arrival.without_payload())

    @property
    def is_whole(self) -> bool:
        """Whether its bytes are here; else it is to be read again before it is sent again."""
        return bool(self.head)

    def moved(self) -> Blob:
        """The same, found in its topic's queue."""
        moved = self._at(self.arrival.in_its_topic())
        moved.head, moved.tail = self.head, self.tail
        return moved

    def _at(self, arrival: Arrival) -> Blob:
        other = Blob(arrival, self.variant, b"", b"")
        other.weight = self.weight
        return other

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
        left_s = min(max(0, (arrival.expires_ms - now_ms + 999) // 1000), arrival.heading.expiry_s)  # clocks differ
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


def _head(heading: Heading, tail_bytes: int, qos: int, retain: bool) -> bytes:
    """What ``publish_head`` says. Messages of one topic and size have the same, so a heading keeps the last one."""
    kind = tail_bytes << 3 | qos << 1 | retain
    if heading.head_kind != kind:
        heading.head = publish_head(heading.name_bytes, tail_bytes, qos, retain)
        heading.head_kind = kind
    return heading.head


def _encode(arrival: Arrival, variant: Variant, now_ms: int) -> Blob:
    tail = _properties(arrival, variant, now_ms) + arrival.payload if variant.is_v5 else arrival.payload
    head = _head(arrival.heading, len(tail), variant.qos, variant.retain)
    return Blob(arrival, variant, head, tail) if variant.qos else Blob(arrival, variant, head + tail, b"")


def blob(arrival: Arrival, variant: Variant, now_ms: int) -> Blob:
    """A message for a variant; its bytes are shared, but those that tell the time left for MQTT 5."""
    if variant.is_v5 and arrival.expires_ms != NEVER:
        return _encode(arrival, variant, now_ms)
    if arrival.encoded is None:
        arrival.encoded = {}
    key = variant.key
    known = arrival.encoded.get(key)
    if known is not None:
        return Blob(arrival, variant, known[0], known[1])
    made = _encode(arrival, variant, now_ms)
    arrival.encoded[key] = (made.head, made.tail)  # not itself: a circle of large ones would wait for the collector
    return made


def is_expired(arrival: Arrival, now_ms: int) -> bool:
    """Whether the message has expired (MQTT-3.3.2-5)."""
    return arrival.expires_ms != NEVER and now_ms >= arrival.expires_ms


class AliasedPacketRun(NamedTuple):
    """A run for clients that take a number of aliases (``gateway/messages/aliases.py``).

    ``defines``: number -> name of every alias in it; ``naming``: the packets, the first of each topic with its name and
    its number, the others with the number; ``brief``: the packets for those who know all numbers; ``largest``: bytes of
    the largest packet, or a few more.
    """

    defines: dict[int, bytes]
    naming: bytes
    brief: bytes
    largest: int


class Several(InFlight):
    """Consecutive messages that are sent alike. One stands for all of them as long as any is on its way, so each weighs
    as much as all."""

    __slots__ = ("_first_id", "_head", "_lead", "_stretch", "_variant")

    def __init__(self, stretch: Stretch, variant: Variant, first_id: int, head: bytes, lead: bytes) -> None:
        super().__init__(variant.qos, len(head) + stretch.count * (stretch.weight + len(lead)))
        self._stretch = stretch
        self._variant = variant
        self._first_id = first_id
        self._head = head
        self._lead = lead  # what is between packet id and payload

    @property
    def ids(self) -> Sequence[int]:
        """Their packet ids."""
        return _ids(self._first_id, self._stretch.count)

    def blob(self, packet_id: int) -> Blob:
        """One of them by itself."""
        arrival = self.message(packet_id)
        if not self.qos:
            return Blob(arrival, self._variant, self._head + self._lead + arrival.payload, b"")
        return Blob(arrival, self._variant, self._head, self._lead + arrival.payload)

    def message(self, packet_id: int) -> Arrival:
        """The message of one of them."""
        return self._stretch.arrival((packet_id - self._first_id) % PACKET_ID_MAX)


_ENCODED_IDS: Final = np.tile(np.arange(1, PACKET_ID_MAX + 1, dtype=">u2"), 2).view("V2")
"""Every packet id as it is sent; behind the largest comes 1."""
_TOGETHER_BYTES: Final = 4096
"""The weight of messages that stand together as one ``Several``."""


_FEW: Final = 24
"""Number of packets up to which one by one is as quick as in columns."""


def _few(even: Stretch, qos: int, head: bytes, lead: bytes) -> bytes:
    """The packets of even messages, ``lead`` between packet id and body."""
    parts: list[bytes] = []
    packet_id = even.first % PACKET_ID_MAX
    for body in even.bodies():
        parts.append(head)
        packet_id += 1
        if qos:
            parts.append(packet_id.to_bytes(2, "big"))
            if packet_id == PACKET_ID_MAX:
                packet_id = 0
        if lead:
            parts.append(lead)
        parts.append(body)
    return b"".join(parts)


def _many(even: Stretch, qos: int, head: bytes, lead: bytes) -> bytes:
    """The same."""
    prefix = head + bytes(2) + lead if qos else head + lead
    data = even.behind(prefix)
    if qos:
        first_id = even.first % PACKET_ID_MAX
        packets = np.frombuffer(data, column(len(head), 2, len(prefix) + even.body_bytes), even.count)
        packets["column"] = _ENCODED_IDS[first_id : first_id + even.count]
    return bytes(data)


def _ids(first: int, count: int) -> Sequence[int]:
    """A number of packet ids from ``first`` on; after the largest follows 1."""
    over = first + count - 1 - PACKET_ID_MAX
    if over <= 0:
        return range(first, first + count)
    return [*range(first, PACKET_ID_MAX + 1), *range(1, over + 1)]


LARGE_BYTES: Final = 64 * 1024
"""Of a run that is larger the messages are not kept beside its packets. Subscribers with a Subscription Identifier each
have a run each, all of which are there until their batch has been handed out; few ask for single messages."""


class PacketRun:
    """A batch as one piece of bytes for every subscriber of one kind.

    Attributes:
        data: the packets, packet ids in place.
        in_flight: packet id -> what is held of those with QoS 1 or 2.
        qos: the highest QoS among them.
        senders: client ids of the publishers (a client among them that wants no local copies needs another way).
        weight: bytes of those in flight, roughly.
        largest: bytes of the largest packet, at most two too many.
        expiring: whether any message expires: then the bytes would be good for a moment only, and none are made.
        aliased: forms with topic aliases, by how many of them a client takes.
    """

    __slots__ = (
        "_as_published",
        "_blobs",
        "_granted",
        "_identifier",
        "_is_v5",
        "_large",
        "_several",
        "aliased",
        "count",
        "data",
        "expiring",
        "in_flight",
        "largest",
        "qos",
        "senders",
        "weight",
    )

    def __init__(self, batch: Batch, is_v5: bool, granted: int, as_published: bool, identifier: int) -> None:
        self._is_v5 = is_v5
        self._granted = granted
        self._as_published = as_published
        self._identifier = identifier
        self.aliased: dict[int, AliasedPacketRun] = {}
        self.in_flight: dict[int, InFlight] = {}
        self.count = len(batch)
        self.data = b""
        self.qos = 0
        self.weight = 0
        self.largest = 0
        self.expiring = False
        self.senders: set[bytes] = set()
        self._blobs: list[tuple[int, Blob]] | None = None
        self._several: list[Several] = []
        self._large: Sequence[Arrival] = ()
        even = batch.even
        if even is not None and even.weight <= _TOGETHER_BYTES // 2:
            self._take_even(even)
        else:
            arrivals = batch.arrivals
            for arrival in arrivals:
                self.senders.add(arrival.heading.sender)
                if arrival.expires_ms != NEVER:
                    self.expiring = True
            if not self.expiring:
                self._take(arrivals)

    def _variant(self, qos: int, retain: bool) -> Variant:
        """How a message that was published so is sent."""
        identifiers = (self._identifier,) if self._identifier else ()
        return Variant(self._is_v5, min(qos, self._granted), self._as_published and retain, identifiers)

    @property
    def blobs(self) -> list[tuple[int, Blob]]:
        """Packet id and blob of each message."""
        made = self._blobs
        if made is None:
            made = [(packet_id, one.blob(packet_id)) for one in self._several for packet_id in one.ids]
            for arrival in self._large:
                made.append((arrival.offset % PACKET_ID_MAX + 1, self._encoded(arrival)))
            if not self._large:
                self._blobs = made
        return made

    def _encoded(self, arrival: Arrival) -> Blob:
        return _encode(arrival, self._variant(arrival.qos, arrival.retain), 0)

    def _take_even(self, even: Stretch) -> None:
        sample, count, size = even.arrival(0), even.count, even.body_bytes
        variant = self._variant(sample.qos, sample.retain)
        lead = _properties(sample, variant, 0) if variant.is_v5 else b""
        head = _head(sample.heading, len(lead) + size, variant.qos, variant.retain)
        self.data = _few(even, variant.qos, head, lead) if count <= _FEW else _many(even, variant.qos, head, lead)
        self.qos = variant.qos
        self.largest = len(head) + len(lead) + size + 2
        self.senders = {sample.sender}
        step = max(1, _TOGETHER_BYTES // (even.weight + len(lead)))
        for start in range(0, count, step):
            part = even if count <= step else even.part(start, min(count, start + step))
            several = Several(part, variant, part.first % PACKET_ID_MAX + 1, head, lead)
            self._several.append(several)
            if variant.qos:
                ids: dict[int, InFlight] = dict.fromkeys(several.ids, several)
                if part is even:
                    self.in_flight = ids
                else:
                    self.in_flight.update(ids)
                self.weight += several.weight * part.count

    def _take(self, batch: Sequence[Arrival]) -> None:
        parts: list[bytes] = []
        blobs: list[tuple[int, Blob]] = []
        variant: Variant | None = None
        qos, retain = 0, False
        largest = weight = highest = 0
        for arrival in batch:
            if variant is None or arrival.qos != qos or arrival.retain != retain:  # mostly it is as the one before
                qos, retain = arrival.qos, arrival.retain
                variant = self._variant(qos, retain)
            made = _encode(arrival, variant, 0)
            packet_id = arrival.offset % PACKET_ID_MAX + 1
            blobs.append((packet_id, made))
            if made.qos:
                self.in_flight[packet_id] = made.sent()
                parts += (made.head, packet_id.to_bytes(2, "big"), made.tail)
                weight += made.weight
                highest = max(highest, made.qos)
            else:
                parts.append(made.head)
            if made.weight > largest:
                largest = made.weight
        self.data = b"".join(parts)
        if len(self.data) <= LARGE_BYTES:
            self._blobs = blobs
        else:
            self._large = batch
        self.qos = highest
        self.weight = weight
        self.largest = largest + 2
