"""What is kept of a session beside its broker's log: will, subscriptions (*terms*), places and exchanges (*flow*).

Three msgpack values, saved apart because they change at different paces; docs/formats/mqtt.md is the page. A place
is the offset to look at next in the light queue of a filter at a broker; a message that is on its way to the client is
not copied but named by its offset there (a retained one by its topic name) beside the packet id under which it went, so
that it can be sent again under that id. What a subscription has not been sent yet of retained messages or of a history
is named by where it goes on. Pure; decoding is total: bytes of a newer gateway, or no such bytes, are an
empty state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

import msgpack

from gateway.options import Start
from gateway.subscriptions import Redo, Subscription

NO_WILL: Final = b"\xc0"


class Will(NamedTuple):
    """What is published if the client does not take its leave. ``user``: who the client was when it left the will."""

    name: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int
    expiry_s: int
    application: bytes
    user: str = ""


class Place(NamedTuple):
    """Where a session reads on in one queue; ``redos`` are stretches to go over again."""

    next: int
    start: int
    seen: int
    redos: tuple[Redo, ...]


class Sent(NamedTuple):
    """A message on its way: in which form it went, and where it is found again: from ``offset`` on, by ``position``, -1
    where that was not saved. ``queue``: the topic queue that a retained message or one of history is in, and ``topic``
    its name; both empty for one of the filter's light queue."""

    packet_id: int
    filter: str
    broker: str
    offset: int
    queue: str
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    shows_place: bool
    topic: str = ""
    position: int = -1


class Owed(NamedTuple):
    """What a subscription is still to be sent of what was stored before a log position: retained messages whose names
    come after ``after``, or, where there is a ``start``, the history of a topic from there on."""

    before: int
    after: str
    start: Start | None
    topic: str


class Flow(NamedTuple):
    """Places by filter and broker, messages on their way in their order, ids that wait for PUBCOMP, the next id, and
    what subscriptions are owed, by filter and broker."""

    places: dict[tuple[str, str], Place]
    sent: list[Sent]
    releasing: list[int]
    next_id: int
    owed: dict[tuple[str, str], Owed]


NO_FLOW: Final = Flow({}, [], [], 1, {})


def _pack(value: Any) -> bytes:
    return cast(bytes, msgpack.packb(value))


def encode_will(will: Will | None) -> bytes:
    """The bytes of a will."""
    return NO_WILL if will is None else _pack(list(will))


def decode_will(data: bytes) -> Will | None:
    """The will in these bytes if there is one."""
    row = _unpack(data)
    fields = len(Will._fields)
    return Will(*row[:fields]) if isinstance(row, list) and len(row) >= fields - len(Will._field_defaults) else None


def encode_terms(subscriptions: Iterable[Subscription]) -> bytes:
    """The bytes of a session's subscriptions, oldest first."""
    return _pack(
        [
            [
                one.filter,
                one.qos,
                one.no_local,
                one.as_published,
                one.retain_handling,
                one.identifier,
                one.shows_place,
                one.name,
            ]
            for one in subscriptions
        ]
    )


def decode_terms(data: bytes) -> list[Subscription]:
    """The subscriptions in these bytes, oldest first."""
    rows = _unpack(data)
    return [
        Subscription(
            filter,
            qos,
            no_local=no_local,
            as_published=published,
            retain_handling=handling,
            identifier=identifier,
            shows_place=shows_place,
            name=name,
        )
        for filter, qos, no_local, published, handling, identifier, shows_place, name, *_ in (
            rows if isinstance(rows, list) else ()
        )
    ]


def encode_flow(flow: Flow) -> bytes:
    """The bytes of a session's places and open exchanges."""
    places = [[filter, broker, *place] for (filter, broker), place in flow.places.items()]
    owed = [[filter, broker, *one] for (filter, broker), one in flow.owed.items()]
    return _pack([places, flow.sent, flow.releasing, flow.next_id, owed])


def decode_flow(data: bytes) -> Flow:
    """Places and exchanges in these bytes."""
    parts = _unpack(data)
    if not isinstance(parts, list) or len(parts) < 4:
        return NO_FLOW
    places = {
        (filter, broker): Place(at, start, seen, tuple([Redo(*redo) for redo in redos]))
        for filter, broker, at, start, seen, redos, *_ in parts[0]
    }
    sent = [
        Sent(packet_id, filter, broker, offset, queue, qos, retain, tuple(identifiers), shows_place, *later[:2])
        for packet_id, filter, broker, offset, queue, qos, retain, identifiers, shows_place, *later in parts[1]
    ]
    return Flow(places, sent, parts[2], parts[3], _owed(parts[4] if len(parts) > 4 else None))


def _owed(rows: Any) -> dict[tuple[str, str], Owed]:
    return {
        (filter, broker): Owed(before, after, None if start is None else _start(*start[:4]), topic)
        for filter, broker, before, after, start, topic, *_ in (rows if isinstance(rows, list) else ())
    }


def _start(kind: str, number: int, offsets: list[list[int]], name: str) -> Start:
    return Start(kind, number, tuple([(queue, offset) for queue, offset in offsets]), name)


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data) if data else None
