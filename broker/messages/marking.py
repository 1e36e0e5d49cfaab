"""Messages that the broker marks before it stores them: with a flag, and a property that says what it is about."""

from __future__ import annotations

from typing import Final

from broker.store.destinations import Destination, Incoming
from penstock.protocol.message import UNIQUE_KEY, decode_properties, encode_properties, record_tail
from penstock.protocol.runs import Run

_UNIQUE: Final = f"{UNIQUE_KEY}\x01".encode()


def marked(incoming: Incoming, flag: int, name: str, value: str) -> Incoming:
    """The same messages with one flag and one property more; a property of that name that they had is replaced. An id
    that counts stays the last property."""
    run, to = incoming
    properties = to.properties_of(run.tail)
    last = b"" if to.id_at < 0 else properties[to.id_at - len(_UNIQUE) :]
    others = properties[: len(properties) - len(last)].rstrip(b"\x02")
    pair = f"{name}\x01{value}".encode()
    if f"{name}\x01".encode() in others:
        pair = encode_properties(decode_properties(others) | {name: value})
        others = b""
    properties = b"\x02".join([part for part in (others, pair, last) if part])
    made = Run(record_tail(to.topic.encode(), properties), run.flag | flag, run.born_ms, run.bodies, run.counts)
    made.queue_id, made.unusual = run.queue_id, run.unusual
    id_at = -1 if not last else len(properties) - len(last) + len(_UNIQUE)
    return Incoming(made, Destination(to.topic, properties, to.level, id_at))
