"""What is kept of a session beside its broker's log: will, subscriptions (*terms*), places and exchanges (*flow*).

Three msgpack values, saved apart because they change at different paces; docs/formats/mqtt.md is the page. A place
is the offset to look at next in the light queue of a filter at a broker; a message that is on its way to the client is
not copied but named by its offset there (a retained one by its topic name) beside the packet id under which it went, so
that it can be sent again under that id. What a subscription has not been sent yet of retained messages or of a history
is named by where it goes on. Pure. Bytes that cannot be read are an error of ``read_...``, and of ``decode_...`` a line
in the log and an empty state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import UnionType
from typing import Any, Final, NamedTuple, Protocol, cast

import msgpack

from gateway.sessions.endings import Ended
from gateway.sessions.options import Start
from gateway.sessions.subscriptions import Redo, Subscription
from penstock.errors import Damaged
from penstock.protocol.requests.sessions import NO_WILL, UNREADABLE_HINT

_log = logging.getLogger(__name__)


class Will(NamedTuple):
    """Message that is published if the client does not take its leave. ``user``: who the client was when it left the
    will."""

    name: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int
    expiry_s: int
    application: bytes
    user: str = ""


class Place(NamedTuple):
    """Place where a session reads on in one queue; ``redos`` are stretches to go over again."""

    next: int
    start: int
    seen: int
    redos: tuple[Redo, ...]

    @property
    def reached(self) -> int:
        """Log position up to which it has come to all that it will come to."""
        return max(self.start - 1, min([redo.after for redo in self.redos], default=self.seen))


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
    """Messages still owed to a subscription, of those stored before a log position: retained messages whose names
    come after ``after``, or, where there is a ``start``, the history of a topic from there on."""

    before: int
    after: str
    start: Start | None
    topic: str


class Past(Protocol):
    """Messages that go before the first live one of a cursor."""

    @property
    def waits(self) -> bool:
        """Whether something has been asked for it, and not been answered."""

    def owed(self) -> Owed | None:
        """The part that is not sent yet; ``None`` if it takes too much room to save with the session."""


class Flow(NamedTuple):
    """Places by filter and broker, messages on their way in their order, ids that wait for PUBCOMP, the next id, and
    what subscriptions are owed, by filter and broker; what those had delivered that have ended; filters that are open
    in the session's name and are to be closed."""

    places: dict[tuple[str, str], Place]
    sent: list[Sent]
    releasing: list[int]
    next_id: int
    owed: dict[tuple[str, str], Owed]
    ended: tuple[Ended, ...] = ()
    closing: tuple[str, ...] = ()


NO_FLOW: Final = Flow({}, [], [], 1, {})


def _pack(value: Any) -> bytes:
    return cast(bytes, msgpack.packb(value))


def encode_will(will: Will | None) -> bytes:
    """The bytes of a will."""
    return NO_WILL if will is None else _pack(list(will))


def decode_will(data: bytes) -> Will | None:
    """The will in these bytes if there is one. Where they cannot be read there is none, which is logged."""
    if data in (b"", NO_WILL):
        return None
    try:
        [row] = _rows([_unpack(data)], str, bytes, int, int, int, int, bytes)
        name, payload, qos, retain, delay_s, expiry_s, application = row[:7]
        user = _later_field(row, 7)
    except ValueError:
        _log.error("a session continues without its will: %s", _unreadable("will"))
        return None
    return Will(name, payload, qos, bool(retain), delay_s, expiry_s, application, user)


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
    """The same for a session that goes on: none where the bytes cannot be read, which is logged."""
    try:
        return read_terms(data)
    except Damaged as error:
        _log.error("a session continues without its subscriptions: %s", error)
        return []


def read_terms(data: bytes) -> list[Subscription]:
    """The subscriptions in these bytes, oldest first. Raises ``Damaged``."""
    if not data:
        return []
    try:
        rows = _rows(_unpack(data), str, int, int, int, int, int, int, str)
    except ValueError:
        raise _unreadable("subscriptions") from None
    return [
        Subscription(
            filter,
            qos,
            no_local=bool(no_local),
            as_published=bool(published),
            retain_handling=handling,
            identifier=identifier,
            shows_place=bool(shows_place),
            name=name,
        )
        for filter, qos, no_local, published, handling, identifier, shows_place, name, *_ in rows
    ]


def encode_flow(flow: Flow) -> bytes:
    """The bytes of a session's places and open exchanges."""
    places = [[filter, broker, *place] for (filter, broker), place in flow.places.items()]
    owed = [[filter, broker, *one] for (filter, broker), one in flow.owed.items()]
    return _pack([places, flow.sent, flow.releasing, flow.next_id, owed, flow.ended, flow.closing])


def decode_flow(data: bytes) -> Flow:
    """The same for a session that goes on: none where the bytes cannot be read, which is logged."""
    try:
        return read_flow(data)
    except Damaged as error:
        _log.error("a session continues without its messages in flight: %s", error)
        return NO_FLOW


def read_flow(data: bytes) -> Flow:
    """Places and exchanges in these bytes. Raises ``Damaged``."""
    if not data:
        return NO_FLOW
    try:
        [parts] = _rows([_unpack(data)], list, list, list, int)
        places = {
            (filter, broker): Place(at, start, seen, _redos(redos))
            for filter, broker, at, start, seen, redos, *_ in _rows(parts[0], str, str, int, int, int, list)
        }
        sent = [_sent(row) for row in _rows(parts[1], int, str, str, int, str, int, int, list, int)]
        owed = _owed(parts[4]) if len(parts) > 4 and isinstance(parts[4], list) else {}
        ended = _ended(parts[5]) if len(parts) > 5 else ()
        closing = tuple(_texts(parts[6])) if len(parts) > 6 else ()
        return Flow(places, sent, _numbers(parts[2]), parts[3], owed, ended, closing)
    except ValueError:
        raise _unreadable("places") from None


def _unreadable(what: str) -> Damaged:
    return Damaged(f"the saved {what} of a session cannot be read", hint=UNREADABLE_HINT)


def _redos(rows: Any) -> tuple[Redo, ...]:
    return tuple(
        [
            Redo(until, after, filter, tuple(_texts(also[0])) if also else ())
            for until, after, filter, *also in _rows(rows, int, int, str)
        ]
    )


def _ended(rows: Any) -> tuple[Ended, ...]:
    return tuple(
        [
            Ended(broker, filter, start, seen, _redos(left), older)
            for broker, filter, start, seen, left, older, *_ in _rows(rows, str, str, int, int, list, int)
        ]
    )


def _sent(row: list[Any]) -> Sent:
    packet_id, filter, broker, offset, queue, qos, retain, identifiers, shows_place = row[:9]
    known_by = tuple(_numbers(identifiers))
    topic = _later_field(row, 9)
    position = row[10] if len(row) > 10 and isinstance(row[10], int) else -1
    return Sent(
        packet_id, filter, broker, offset, queue, qos, bool(retain), known_by, bool(shows_place), topic, position
    )


def _owed(rows: list[Any]) -> dict[tuple[str, str], Owed]:
    return {
        (filter, broker): Owed(before, after, _start(start), topic)
        for filter, broker, before, after, start, topic, *_ in _rows(rows, str, str, int, str, list | None, str)
    }


def _start(row: list[Any] | None) -> Start | None:
    if row is None:
        return None
    [(kind, number, offsets, name, *_)] = _rows([row], str, int, list, str)
    return Start(kind, number, tuple([(queue, offset) for queue, offset, *_ in _rows(offsets, int, int)]), name)


def _rows(rows: Any, *kinds: type | UnionType) -> list[list[Any]]:
    """These rows, if their first fields are of these kinds. Raises ``ValueError``."""
    if not isinstance(rows, list):
        raise ValueError("they are no rows")
    for row in rows:
        if not isinstance(row, list) or len(row) < len(kinds) or not all(map(isinstance, row, kinds)):
            raise ValueError("a row has other fields")
    return rows


def _numbers(row: list[Any]) -> list[int]:
    if not all([isinstance(one, int) for one in row]):
        raise ValueError("they are no numbers")
    return row


def _texts(row: Any) -> list[str]:
    if not isinstance(row, list) or not all([isinstance(one, str) for one in row]):
        raise ValueError("they are no texts")
    return row


def _later_field(row: list[Any], at: int) -> str:
    """A field that older gateways did not write. Raises ``ValueError``."""
    field = row[at] if len(row) > at else ""
    if not isinstance(field, str):
        raise ValueError("a field is no string")
    return field


def _unpack(data: bytes) -> Any:
    """Raises ``ValueError`` for what is no msgpack."""
    try:
        return msgpack.unpackb(data) if data else None
    except (TypeError, msgpack.UnpackException) as error:  # a key that cannot be one; what is not a ValueError itself
        raise ValueError(str(error)) from None
