"""How an MQTT publication becomes a stored record and how a stored record is read back.

The record's properties say under which name devices see the message (``MQTT_TOPIC``, always first), the key that
keeps a device's messages in order (``KEYS``), who published it (``MQTT_CLIENT``, for *no local*; of a retained message
also as whom, ``MQTT_USER``, in base64), and the application's MQTT 5 properties (``MQTT_PROPS``: the expiry interval in
seconds or nothing, a colon, then the other properties byte for byte as they came, in base64, so that they go out
unaltered and in order: MQTT-3.3.2-17, -18). A message of a native producer has none of these but a topic.

An ``Arrival`` is one such message taken from a pulled batch, decoded once for all subscribers. Of a run that a broker
in the same process hands over only the heading is decoded.
"""

from __future__ import annotations

import contextlib
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gateway.brokers import Broker
from penstock.errors import InvalidMessage
from penstock.protocol.compression import COMPRESSED, SYSTEM_FLAG_AT, decompress
from penstock.protocol.message import (
    BODY_AT,
    BORN_AT,
    CLIENT_ID,
    ENTRY,
    FLAG_QOS,
    FLAG_RETAIN,
    FRAME_HEAD_BYTES,
    KEYS,
    MQTT_ID,
    MQTT_PROPERTIES,
    MQTT_TOPIC,
    MQTT_USER,
    NEVER,
    OFFSETS_AT,
    QUEUE_ID_AT,
    STORED_AT,
    expiry_of,
    lasts_from_ms,
    mqtt_name,
    property_of,
)
from penstock.protocol.runs import Run, system_flag_of
from penstock.protocol.trace_context import (
    NO_TRACE,
    TRACEPARENT,
    TraceContext,
    as_user_properties,
    trace_stored,
)
from topicmap.names import is_share, plain_filter
from topicmap.queues import topic_queue

_CLIENT_ID: Final = CLIENT_ID.encode()
_MQTT_PROPERTIES: Final = MQTT_PROPERTIES.encode()
_MQTT_USER: Final = MQTT_USER.encode()
_TRACEPARENT: Final = TRACEPARENT.encode()
FRAME: Final = struct.Struct(
    f">{FRAME_HEAD_BYTES + QUEUE_ID_AT}xIIQ{SYSTEM_FLAG_AT - OFFSETS_AT - 8}xIQ{STORED_AT - BORN_AT - 8}xQ"
    f"{BODY_AT - 4 - STORED_AT - 8}xI"
)
"""Of a frame, up to its body: queue id, flag and queue offset; system flag; times of birth and storing; body length."""
REMEMBERED_BYTES_MAX: Final = 4096
"""A heading of more bytes is read each time: else 8,192 of them would take gigabytes."""
HEAD_BYTES: Final = FRAME.size  # up to the body
ENTRY_BYTES: Final = ENTRY.size
FLAG_AT: Final = FRAME_HEAD_BYTES + QUEUE_ID_AT + 4  # within the frame
SYSTEM_AT: Final = FRAME_HEAD_BYTES + SYSTEM_FLAG_AT


def record_properties(
    name: str,
    key: str,
    client_id: str,
    expiry_s: int = NEVER,
    application: bytes = b"",
    exchange: str = "",
    user: str = "",
    trace: TraceContext = NO_TRACE,
) -> bytes:
    """The property string of a publication. The caller has checked that no text holds U+0001 or U+0002."""
    parts = [f"{MQTT_TOPIC}\x01{name}"]
    if key:
        parts.append(f"{KEYS}\x01{key}")
    if client_id:
        parts.append(f"{CLIENT_ID}\x01{client_id}")
    if application or expiry_s != NEVER:
        expiry = "" if expiry_s == NEVER else str(expiry_s)
        parts.append(f"{MQTT_PROPERTIES}\x01{expiry}:{b64encode(application).decode()}")
    if exchange:
        parts.append(f"{MQTT_ID}\x01{exchange}")
    if user:
        parts.append(f"{MQTT_USER}\x01{b64encode(user.encode()).decode()}")
    if trace.trace_id:
        parts += [f"{name}\x01{value}" for name, value in trace.properties().items()]
    return "\x02".join(parts).encode()


class Heading:
    """Meaning of a record's topic and properties; equal for most messages of one device, and so read only once.
    ``head``: how its last PUBLISH began, and ``head_kind`` of which kind that was
    (``gateway/messages/outgoing.py``). ``trace``: the context that it is stored with."""

    __slots__ = (
        "application",
        "expiry_s",
        "head",
        "head_kind",
        "name",
        "name_bytes",
        "sender",
        "topic",
        "trace",
        "user",
    )

    def __init__(
        self,
        name: str,
        sender: bytes,
        expiry_s: int,
        application: bytes,
        topic: bytes,
        user: str,
        hidden: int = 0,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        """``hidden``: number of leading characters of the name that subscribers do not get (the mount point)."""
        self.name = name
        self.name_bytes = (name[hidden:] if hidden else name).encode("utf-8", "replace")
        self.sender = sender
        self.expiry_s = expiry_s
        self.application = application
        self.topic = topic
        self.user = user
        self.trace = trace
        self.head = b""
        self.head_kind = -1


def read_heading(tail: bytes) -> Heading:
    """The heading in all that follows a record's body: topic and properties, each with its length before it."""
    return _remembered(tail) if len(tail) <= REMEMBERED_BYTES_MAX else _read(tail)


@lru_cache(maxsize=8192)
def _remembered(tail: bytes) -> Heading:
    return _read(tail)


def _read(tail: bytes) -> Heading:
    properties_at = 2 + int.from_bytes(tail[:2], "big")
    properties = tail[properties_at + 2 :]
    topic = tail[2:properties_at]
    name = mqtt_name(topic, properties)
    mqtt_properties = property_of(properties, _MQTT_PROPERTIES)
    expiry_s, application = expiry_of(mqtt_properties), _application(mqtt_properties)
    sender, user = property_of(properties, _CLIENT_ID), _user(property_of(properties, _MQTT_USER))
    trace = trace_stored(properties)
    if trace.trace_id and _TRACEPARENT not in application:  # a program or a gateway began the trace
        application += as_user_properties(trace)
    return Heading(name, sender, expiry_s, application, topic, user, trace=trace)


def _application(mqtt_properties: bytes) -> bytes:
    try:
        return b64decode(mqtt_properties.partition(b":")[2], validate=True)
    except (ValueError, Base64Error):
        return b""  # another program wrote our reserved name: the message itself is still good


def _user(packed: bytes) -> str:
    try:
        return b64decode(packed, validate=True).decode()
    except (ValueError, Base64Error):
        return ""


class Origin:
    """Source of messages: a queue at a broker, and the filter for which it was read. So they are found again.
    ``queue`` is empty until it is known. ``through``: of one message, the share that brought it, and its offset there.
    """

    __slots__ = ("broker", "filter", "queue", "through")

    def __init__(self, broker: Broker, filter: str, queue: str = "", through: tuple[Origin, int] | None = None) -> None:
        self.broker = broker
        self.filter = filter
        self.queue = queue
        self.through = through

    @property
    def is_light(self) -> bool:
        """Whether it is the light queue of the filter; else it is a queue of the topic."""
        return self.queue.startswith("~")


class Arrival:
    """A stored message on its way to subscribers.

    Attributes:
        offset: its place in the queue that was pulled (0 for a retained message that was fetched).
        position: its place in the log; the same in every queue that it belongs to.
        qos, retain: as published.
        heading: its common parts with other messages of its device.
        queue_id, queue_offset: its topic queue, and its place in that.
        expires_ms: wall-clock time after which it is not delivered, or ``NEVER``.
        born_ms, stored_ms: wall-clock times at its sender and when it was stored.
        origin: where it was pulled; ``None`` if it need not be found again.
        encoded: forms in two parts, for all subscribers that get the same bytes (``gateway/messages/outgoing.py``).
    """

    __slots__ = (
        "born_ms",
        "encoded",
        "expires_ms",
        "heading",
        "offset",
        "origin",
        "payload",
        "position",
        "qos",
        "queue_id",
        "queue_offset",
        "retain",
        "stored_ms",
    )

    def __init__(
        self,
        offset: int,
        position: int,
        flag: int,
        payload: bytes,
        heading: Heading,
        born_ms: int,
        stored_ms: int,
        queue_id: int,
        queue_offset: int,
        origin: Origin | None = None,
    ) -> None:
        self.offset = offset
        self.origin = origin
        self.position = position
        self.qos = min(flag & FLAG_QOS, 2)
        self.retain = flag & FLAG_RETAIN != 0
        self.payload = payload
        self.heading = heading
        self.born_ms = born_ms
        self.stored_ms = stored_ms
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.expires_ms = NEVER
        if heading.expiry_s != NEVER:
            self.expires_ms = lasts_from_ms(born_ms, stored_ms) + heading.expiry_s * 1000
        self.encoded: dict[object, tuple[bytes, bytes]] | None = None

    @property
    def name(self) -> str:
        """The MQTT topic name."""
        return self.heading.name

    @property
    def name_bytes(self) -> bytes:
        """The MQTT topic name."""
        return self.heading.name_bytes

    @property
    def sender(self) -> bytes:
        """Client id of the device that published it, ``b""`` if none did."""
        return self.heading.sender

    @property
    def user(self) -> str:
        """The user as whom the device published it, if it was to be retained; empty without one."""
        return self.heading.user

    @property
    def application(self) -> bytes:
        """MQTT 5 properties to forward, encoded, without their length."""
        return self.heading.application

    @property
    def topic(self) -> bytes:
        """The topic that it is stored in."""
        return self.heading.topic

    @property
    def queue(self) -> str:
        """The topic queue that it is in."""
        return topic_queue(self.topic.decode("utf-8", "replace"), self.queue_id)

    def in_its_topic(self) -> Arrival:
        """The same message as a reader of its topic's queue finds it; it is no share's there."""
        assert self.origin is not None
        filter = self.origin.filter
        through = (self.origin, self.offset) if is_share(filter) else None
        origin = Origin(self.origin.broker, plain_filter(filter), self.queue, through)
        return self._as(self.queue_offset, self.payload, origin)

    def without_payload(self) -> Arrival:
        """The same message, to be known by."""
        return self.with_payload(b"")

    def with_payload(self, payload: bytes) -> Arrival:
        """The same message, with what is its payload."""
        return self._as(self.offset, payload, self.origin)

    def with_heading(self, heading: Heading) -> Arrival:
        """The same message, with another heading."""
        return self._as(self.offset, self.payload, self.origin, heading)

    def _as(self, offset: int, payload: bytes, origin: Origin | None, heading: Heading | None = None) -> Arrival:
        flag = self.qos | FLAG_RETAIN if self.retain else self.qos
        heading = heading or self.heading
        born_ms, stored_ms, place = self.born_ms, self.stored_ms, self.queue_offset
        return Arrival(offset, self.position, flag, payload, heading, born_ms, stored_ms, self.queue_id, place, origin)


def arrivals(count: int, batch: bytes | memoryview, origin: Origin | None = None) -> list[Arrival]:
    """The messages of a pulled batch. Raises ``InvalidMessage`` if it is shorter than it says."""
    data = batch if isinstance(batch, bytes) else bytes(batch)
    at, total = count * ENTRY_BYTES, len(data)
    if at > total:
        raise InvalidMessage("a pulled batch is shorter than its entries")
    found: list[Arrival] = []
    raw, heading = b"", None
    for entry_at in range(0, at, ENTRY_BYTES):
        offset, position, size, _tag = ENTRY.unpack_from(data, entry_at)
        end = at + size
        if end > total or size < HEAD_BYTES:
            raise InvalidMessage("a pulled batch is shorter than its frames")
        queue_id, flag, queue_offset, system_flag, born_ms, stored_ms, body_bytes = FRAME.unpack_from(data, at)
        body = at + HEAD_BYTES
        tail = body + body_bytes
        if tail + 4 > end:
            raise InvalidMessage("a pulled batch is shorter than its frames")
        if heading is None or data[tail:end] != raw:  # mostly it is the one before
            raw = data[tail:end]
            heading = read_heading(raw)
        payload = plain_body(data[body:tail], system_flag) if system_flag else data[body:tail]
        found.append(
            Arrival(offset, position, flag, payload, heading, born_ms, stored_ms, queue_id, queue_offset, origin)
        )
        at = end
    return found


def plain_body(body: bytes, system_flag: int) -> bytes:
    """The body that a producer has sent; one that it compressed and that cannot be undone, as it is stored."""
    if system_flag & COMPRESSED:
        with contextlib.suppress(InvalidMessage):
            return decompress(body, system_flag)
    return body


def arrival_of(run: Run, number: int, offset: int, heading: Heading, origin: Origin | None) -> Arrival:
    """Message ``number`` of a run; ``offset`` is its own in the queue that was pulled, ``heading`` that of all."""
    position, payload, place = run.position + number * run.step, run.bodies[number], run.offset + number
    born_ms, stored_ms = run.born_ms, run.stored_ms
    if run.unusual:
        payload = plain_body(payload, system_flag_of(run))
    return Arrival(offset, position, run.flag, payload, heading, born_ms, stored_ms, run.queue_id, place, origin)


def given_arrivals(offset: int, runs: Sequence[Run], origin: Origin | None = None) -> list[Arrival]:
    """The messages of runs that stand one behind the other in the queue that was pulled, from ``offset`` on."""
    found: list[Arrival] = []
    for run in runs:
        heading = read_heading(run.tail)
        for number in range(len(run.bodies)):
            found.append(arrival_of(run, number, offset, heading, origin))
            offset += 1
    return found
