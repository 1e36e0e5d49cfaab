"""Facts of the configuration as the log has them."""

from __future__ import annotations

from events.facts import StoredFact, record_of
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage


def stored(position: int, key: str, spec: object, stored_ms: int = 0, *, created_ms: int = 0) -> StoredFact:
    """The message of a fact; ``key``: kind, bus and name. ``spec``: None removes."""
    message = decode_message(record_of(f"$events/{key}", spec, 0, created_ms, "", 0))
    return StoredFact(position, message.mqtt_topic, message.body, stored_ms)


def received(queue: MessageQueue, offset: int, properties: dict[str, str]) -> ReceivedMessage:
    """A message with these properties, at a place of a queue."""
    message = decode_message(encode_message(Message(queue.topic, b"", properties=properties)), queue)
    message.offset = offset
    return message
