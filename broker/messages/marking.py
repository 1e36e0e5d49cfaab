"""Records that the broker marks before it stores them: with a flag, and a property that says what the flag is about."""

from __future__ import annotations

from broker.store.frames import FLAG_AT
from broker.store.records import Incoming
from penstock.protocol.message import (
    BODY_AT,
    decode_properties,
    encode_properties,
    record_body,
    record_tail,
    record_topic,
)


def marked(incoming: Incoming, flag: int, name: str, value: str) -> Incoming:
    """The same record with one flag and one property more; a property of that name that it had is replaced."""
    record = bytes(incoming.record)
    pair, properties = f"{name}\x01{value}".encode(), incoming.properties
    if f"{name}\x01".encode() in properties:
        properties = encode_properties(decode_properties(properties) | {name: value})
    else:
        properties = properties.rstrip(b"\x02") + b"\x02" + pair if properties else pair
    tail = record_tail(record_topic(record), properties)
    body_end = BODY_AT + len(record_body(record))
    flags = incoming.flag | flag
    size = (body_end + len(tail)).to_bytes(4, "big")
    whole = b"".join((size, record[4:FLAG_AT], flags.to_bytes(4, "big"), record[FLAG_AT + 4 : body_end], tail))
    return incoming._replace(record=whole, flag=flags, properties=properties)
