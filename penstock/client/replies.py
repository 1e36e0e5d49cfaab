"""What requests wait for: the name of their replies, whose is whose, and where they are read. Pure.

The producers (penstock/client/requesting.py and penstock/blocking/requesting.py) do the waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.errors import (
    InvalidMessage,
    InvalidRequest,
    LogReplaced,
    OffsetOutOfRange,
    PenstockError,
    QueueNotFound,
    from_wire,
)
from penstock.protocol.message import Message, decode_batch
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import OpenedFilters
from penstock.protocol.requests.messages import Pulled
from penstock.world import Rng
from topicmap.names import REPLY_LEVEL

LEASE_S: Final = 120.0
"""How long a broker keeps the replies of a producer of which it hears nothing."""
KEEP_S: Final = 30.0
POLL_S: Final = 20.0
_CORRELATION_BYTES: Final = 8
_W = TypeVar("_W")


class Place(NamedTuple):
    """The place where the next reply of a broker is read."""

    queue: str
    offset: int
    log_id: str


def named(rng: Rng) -> tuple[str, str]:
    """The unguessable name of a producer's replies, and the owner of its light queue."""
    bits = f"{rng.getrandbits(64):016x}"
    return f"{REPLY_LEVEL}/{bits}", f"reply:{bits}"


class Waiting(Generic[_W]):
    """Requests that wait, by their correlation data; each with the object to notify of its reply."""

    def __init__(self, rng: Rng) -> None:
        self._next = rng.getrandbits(8 * _CORRELATION_BYTES - 1)
        self._open: dict[bytes, _W] = {}
        self._replies: dict[bytes, ReceivedMessage] = {}

    def begin(self, told: _W) -> bytes:
        """A request begins to wait; its correlation data."""
        self._next += 1
        correlation = self._next.to_bytes(_CORRELATION_BYTES + 1, "big")[-_CORRELATION_BYTES:]
        self._open[correlation] = told
        return correlation

    def take(self, reply: ReceivedMessage) -> _W | None:
        """Takes a reply and returns the object to notify, if a request waits for it. Only the first reply counts."""
        try:
            correlation = reply.correlation
        except InvalidMessage:
            return None
        told = self._open.get(correlation)
        if told is None or correlation in self._replies:
            return None
        self._replies[correlation] = reply
        return told

    def is_answered(self, correlation: bytes) -> bool:
        """Whether a request has its reply."""
        return correlation in self._replies

    def end(self, correlation: bytes) -> ReceivedMessage | None:
        """A request waits no longer; its reply, if there is one."""
        self._open.pop(correlation, None)
        return self._replies.pop(correlation, None)

    @staticmethod
    def message(message: Message, reply_to: str, correlation: bytes) -> Message:
        """The request as it is sent. Raises ``InvalidRequest`` where the program wants the reply somewhere else."""
        if message.reply_to or message.correlation:
            hint = "send it, and read the reply where it goes"
            raise InvalidRequest("a request's reply_to and correlation are the producer's", hint=hint)
        return Message(
            message.topic,
            message.body,
            message.key,
            message.tag,
            message.properties,
            message.mqtt_topic,
            message.qos,
            message.retain,
            message.born_ms,
            message.id,
            reply_to,
            correlation,
        )


def reply_of(request: ReceivedMessage, body: bytes) -> Message:
    """The message that answers a request. Raises ``InvalidRequest`` for one that wants no answer."""
    if not isinstance(request, ReceivedMessage):
        raise InvalidRequest(f"reply takes a received message, not {request!r:.100}")
    if not request.reply_to:
        raise InvalidRequest(f"the message at {request.queue}, offset {request.offset}, wants no reply")
    return Message(body=body, mqtt_topic=request.reply_to, correlation=request.correlation)


def opened_at(reply: OpenedFilters) -> Place:
    """The offset at which the replies of a broker begin. Raises the error with which it refused their queue."""
    for one in reply.refused:
        raise from_wire(one.code, one.message)
    [opened] = reply.opened
    return Place(opened.queue, opened.offset, reply.log_id)


def lost_its_place(error: PenstockError) -> bool:
    """Whether the queue of replies is to be opened anew."""
    return isinstance(error, QueueNotFound | OffsetOutOfRange | LogReplaced)


def replies_in(pulled: Pulled, broker: str) -> Iterator[ReceivedMessage]:
    """The messages of a pull."""
    for _, message in decode_batch(pulled.count, pulled.body):
        message.queue = message.queue._replace(broker=broker)
        yield message
