"""Messages that the broker marks before it stores them: with a flag, and a property that says what it is about."""

from __future__ import annotations

from broker.store.destinations import Destination, Incoming
from penstock.protocol.message import decode_properties, encode_properties, record_tail
from penstock.protocol.runs import Run


def marked(incoming: Incoming, flag: int, name: str, value: str) -> Incoming:
    """The same message with one flag and one property more; a property of that name that it had is replaced."""
    run, to = incoming
    pair, properties = f"{name}\x01{value}".encode(), to.properties_of(run.tail)
    if f"{name}\x01".encode() in properties:
        properties = encode_properties(decode_properties(properties) | {name: value})
    else:
        properties = properties.rstrip(b"\x02") + b"\x02" + pair if properties else pair
    made = Run(record_tail(to.topic.encode(), properties), run.flag | flag, run.born_ms, run.bodies)
    made.queue_id, made.unusual = run.queue_id, run.unusual
    return Incoming(made, Destination(to.topic, properties, to.level))
