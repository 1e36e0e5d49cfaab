"""Small makers that several twins share."""

from __future__ import annotations

from gateway.brokers import Broker, Brokers
from gateway.messages.batch import Batch, pulled_batch
from gateway.messages.envelope import Arrival, Origin, arrivals, record_properties
from gateway.messages.feed import Feed
from gateway.messages.outgoing import Blob, Variant, blob
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from penstock.protocol.link import OnResult
from penstock.protocol.message import ENTRY, FRAME_HEAD, FRAME_HEAD_BYTES, encode_record
from penstock.protocol.requests.request import Request


class Nowhere:
    """Links to servers that are not there, for what only tells brokers apart."""

    def link(self, address: str) -> Nowhere:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        raise AssertionError("nothing was to be asked")

    def flush(self) -> None:
        """There is nothing."""


def a_broker() -> Broker:
    nowhere = Nowhere()
    return Broker("127.0.0.1:1", nowhere, Brokers(nowhere, [], lambda: None))


BROKER = a_broker()


def arrival(
    offset: int = 0,
    *,
    name: str = "a/b",
    payload: bytes = b"x",
    qos: int = 1,
    retain: bool = False,
    sender: str = "",
    position: int | None = None,
    expiry_s: int = -1,
    application: bytes = b"",
) -> Arrival:
    properties = record_properties(name, "", sender, expiry_s, application)
    record = encode_record(b"a", payload, properties, flag=qos | (4 if retain else 0))
    [one] = arrivals(1, batch_of(record, offset=offset, position=1000 + offset if position is None else position))
    return one


def batch_of(*records: bytes, offset: int = 7, position: int = 100) -> bytes:
    """Records as a pull's reply carries them."""
    frames = [FRAME_HEAD.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0, 0) + record for record in records]
    entries = [ENTRY.pack(offset + at, position + at, len(frame), 0) for at, frame in enumerate(frames)]
    return b"".join(entries + frames)


def pulled(*messages: Arrival, origin: Origin | None = None) -> Batch:
    """Messages as one pull brings them."""
    entries, frames = b"", b""
    for one in messages:
        heading = one.heading
        properties = record_properties(one.name, "", one.sender.decode(), heading.expiry_s, one.application)
        record = encode_record(b"a", one.payload, properties, flag=one.qos | (4 if one.retain else 0))
        frame = FRAME_HEAD.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0, 0) + record
        entries += ENTRY.pack(one.offset, one.position, len(frame), 0)
        frames += frame
    return pulled_batch(len(messages), entries + frames, origin)


def made(offset: int = 0, qos: int = 1, is_v5: bool = False) -> Blob:
    return blob(arrival(offset, qos=qos), Variant(is_v5, qos, False), 0)


def subscribed(session: Session, filter: str, *, start: int = 0, broker: Broker = BROKER, **options: object) -> Cursor:
    options.setdefault("qos", 2)
    subscription = Subscription(filter, **options)  # type: ignore[arg-type]
    cursor = Cursor(session, subscription, Feed(broker, filter))
    cursor.next, cursor.start = 0, start
    session.subscriptions[filter] = subscription
    session.overlap.add(cursor)
    return cursor
