"""How an MQTT publication becomes a stored record and how a stored record is read back.

The record's properties say under which name devices see the message (``MQTT_TOPIC``, always first), the key that
keeps a device's messages in order (``KEYS``), who published it (``MQTT_CLIENT``, for *no local*), and the
application's MQTT 5 properties (``MQTT_PROPS``: the expiry interval in seconds or nothing, a colon, then the other
properties byte for byte as they came, in base64, so that they go out unaltered and in order: MQTT-3.3.2-17, -18). A
message of a native producer has none of these but a topic.

An ``Arrival`` is one such message taken from a pulled batch, decoded once for all subscribers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Final

from penstock.errors import InvalidMessage
from penstock.message import (
    BODY_AT,
    CLIENT_ID,
    ENTRY,
    FLAG_QOS,
    FLAG_RETAIN,
    FRAME_HEAD_BYTES,
    KEYS,
    MQTT_PROPERTIES,
    MQTT_TOPIC,
    RECORD_HEAD,
    mqtt_name,
    property_of,
)

_CLIENT_ID: Final = CLIENT_ID.encode()
_MQTT_PROPERTIES: Final = MQTT_PROPERTIES.encode()
NEVER: Final = -1


def record_properties(name: str, key: str, client_id: str, expiry_s: int = NEVER, application: bytes = b"") -> bytes:
    """The property string of a publication. The caller has checked that no text holds U+0001 or U+0002."""
    parts = [f"{MQTT_TOPIC}\x01{name}"]
    if key:
        parts.append(f"{KEYS}\x01{key}")
    if client_id:
        parts.append(f"{CLIENT_ID}\x01{client_id}")
    if application or expiry_s != NEVER:
        expiry = "" if expiry_s == NEVER else str(expiry_s)
        parts.append(f"{MQTT_PROPERTIES}\x01{expiry}:{b64encode(application).decode()}")
    return "\x02".join(parts).encode()


class Arrival:
    """A stored message on its way to subscribers.

    Attributes:
        offset: its place in the queue that was pulled (0 for a retained message that was fetched).
        position: its place in the log; the same in every queue that it belongs to.
        name: the MQTT topic name, as text and as bytes.
        qos, retain: as published.
        sender: client id of the device that published it, ``b""`` if none did.
        expires_ms: wall-clock time after which it is not delivered, or ``NEVER``.
        application: MQTT 5 properties to forward, encoded, without their length.
        blobs: encoded forms, shared by all subscribers that get the same bytes (``gateway/delivery.py``).
    """

    __slots__ = (
        "application",
        "blobs",
        "expires_ms",
        "name",
        "name_bytes",
        "offset",
        "payload",
        "position",
        "qos",
        "retain",
        "sender",
    )

    def __init__(self, offset: int, position: int, record: memoryview) -> None:
        head = RECORD_HEAD.unpack_from(record)
        topic_at = BODY_AT + head[14]
        properties_at = topic_at + 2 + int.from_bytes(record[topic_at : topic_at + 2], "big")
        properties = bytes(record[properties_at + 2 :])
        self.offset = offset
        self.position = position
        self.name: str = mqtt_name(bytes(record[topic_at + 2 : properties_at]), properties)
        self.name_bytes: bytes = self.name.encode("utf-8", "replace")
        self.payload = bytes(record[BODY_AT:topic_at])
        self.qos: int = min(head[4] & FLAG_QOS, 2)
        self.retain: bool = head[4] & FLAG_RETAIN != 0
        self.sender = property_of(properties, _CLIENT_ID)
        self.expires_ms = NEVER
        self.application = b""
        self.blobs: dict[object, object] = {}
        packed = property_of(properties, _MQTT_PROPERTIES)
        if packed:
            self._unpack(packed, head[10])

    def _unpack(self, packed: bytes, stored_ms: int) -> None:
        expiry, _, application = packed.partition(b":")
        try:
            if expiry:
                self.expires_ms = stored_ms + int(expiry) * 1000
            self.application = b64decode(application, validate=True)
        except (ValueError, Base64Error):
            pass  # written by somebody else under our reserved name: the message itself is still good


def arrivals(count: int, batch: bytes | memoryview) -> Iterator[Arrival]:
    """The messages of a pulled batch. Raises ``InvalidMessage`` if it is shorter than it says."""
    view = memoryview(batch)
    at = count * ENTRY.size
    if at > len(view):
        raise InvalidMessage("a pulled batch is shorter than its entries")
    for offset, position, size, _tag in ENTRY.iter_unpack(view[:at]):
        if size < FRAME_HEAD_BYTES + RECORD_HEAD.size + 4 or at + size > len(view):
            raise InvalidMessage("a pulled batch is shorter than its frames")
        yield Arrival(offset, position, view[at + FRAME_HEAD_BYTES : at + size])
        at += size
