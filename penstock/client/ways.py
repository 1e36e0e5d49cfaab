"""The ways in which a producer has messages stored: at once, in a queue that it chooses, or later.

A way makes the request for a batch and gives each of its messages what the answer says of it. Producers drive all ways
alike, with one deadline over the attempts. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from penstock import errors
from penstock.client import sending
from penstock.client.delays import Due
from penstock.client.preparation import Preparation
from penstock.client.sending import Outgoing, Receipt
from penstock.errors import InternalError, InvalidRequest, NoRoute, PenstockError
from penstock.protocol.message import Message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Append, Appended, PlacedRun
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import CancelTimer, SetTimers, TimersSet
from penstock.protocol.runs import Run, record_of

RECORDS_MAX: Final = 1024
"""Whole records in a request."""
ASLEEP: Final = -2
"""In place of a queue's number, of messages that are in none yet."""


@dataclass(frozen=True, slots=True)
class DelayedReceipt:
    """The receipt of a message that is stored and delivered later. ``Producer.cancel`` cancels it.

    Attributes:
        id: its unique id, made by the producer.
        broker, timer, due_ms: together they name the timer: broker, its number there, and when it is due, in
            milliseconds since 1970. A number of -1: an earlier attempt has stored the message, and the broker does not
            know any more which timer it has.
        topic: the topic that it is delivered in.
        status: always ``"ok"``: a message that was not stored, or may not have been, is an error.
    """

    id: str
    broker: str
    timer: int
    due_ms: int
    topic: str
    status: Literal["ok"] = "ok"

    @property
    def name(self) -> str:
        """The timer as ``penstock timer`` names it."""
        return f"{self.timer}@{self.due_ms}"


Selector = MessageQueue | Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""A queue to send to, or what chooses it for a message among all queues of its topic that take messages."""


class Way:
    """The way in which messages are stored: at once, in queues that the brokers choose.

    Attributes:
        may_leave: whether a message without a key goes to another broker where one gives no answer.
        is_whole: whether an illegal message keeps all that are sent with it from being stored.
    """

    may_leave: ClassVar[bool] = True
    is_whole: ClassVar[bool] = False

    def request(self, batch: Sequence[Outgoing]) -> Request:
        """The request that stores a batch."""
        return sending.append_of(batch)

    def settle(self, batch: Sequence[Outgoing], broker: str, result: Result) -> None:
        """Gives each message of a batch its place or error."""
        sending.settle(batch, broker, result)

    def fits(self, batch_bytes: int, batch_count: int, one: Outgoing) -> bool:
        """Whether one more fits a request with this number of bytes of records and of messages."""
        return sending.fits(batch_bytes, batch_count, one)

    def again(self, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
        """Messages whose failure a retry may correct."""
        return sending.once_more(outgoing)


class Records(Way):
    """Ways whose requests have whole records, each of its own: runs are to be split before (``singles``)."""

    def fits(self, batch_bytes: int, batch_count: int, one: Outgoing) -> bool:
        return batch_count < RECORDS_MAX and sending.fits(batch_bytes, batch_count, one)


class InQueue(Records):
    """The way at once, in chosen queues."""

    def request(self, batch: Sequence[Outgoing]) -> Request:
        return Append(len(batch), True, body_of(batch))

    def settle(self, batch: Sequence[Outgoing], broker: str, result: Result) -> None:
        if isinstance(result, Appended) and len(result.placed) == len(batch):
            refused = {one.at for one in result.refused}
            rows = [PlacedRun(at, *one) for at, one in enumerate(result.placed) if at not in refused]
            result = Appended(result.level, (), result.refused, tuple(rows))
        sending.settle(batch, broker, result)


class Later(Records):
    """The way as delayed messages. ``from_now``: ``due_ms`` is a time from now, else since 1970."""

    def __init__(self, *, from_now: bool) -> None:
        self._from_now = from_now

    def request(self, batch: Sequence[Outgoing]) -> Request:
        return SetTimers(tuple([one.due_ms for one in batch]), self._from_now, body_of(batch))

    def settle(self, batch: Sequence[Outgoing], broker: str, result: Result) -> None:
        if not isinstance(result, PenstockError) and not (
            isinstance(result, TimersSet) and len(result.timers) == len(batch)
        ):
            result = InternalError("the broker's answer does not fit the batch")
            result.unknown = True
        if isinstance(result, PenstockError):
            for one in batch:
                one.fail(result)
            return
        refused = {one.at: errors.from_wire(one.code, one.message) for one in result.refused}
        for at, (one, timer) in enumerate(zip(batch, result.timers, strict=True)):
            if at in refused:
                one.fail(refused[at])
            else:
                one.stored(MessageQueue(broker, one.topic, ASLEEP), timer.id, "")
                one.due_ms = timer.due_ms


AT_ONCE: Final = Way()
IN_QUEUE: Final = InQueue()
IN_A_WHILE: Final = Later(from_now=True)
AT_A_TIME: Final = Later(from_now=False)


def singles(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """The same messages, each on its way by itself."""
    return [part for one in outgoing for part in (one.split() if one.count > 1 else [one])]


def way_of(queue: Selector | None, due: Due | None) -> Way:
    """The way of messages whose queue was chosen, or that are due later. Raises ``InvalidRequest``."""
    if queue is None:
        return AT_ONCE if due is None else IN_A_WHILE if due.from_now else AT_A_TIME
    if due is not None:
        raise InvalidRequest("queue and a delay exclude each other", hint="give the delayed message a key")
    if not _is_queue(queue) and not callable(queue):
        raise InvalidRequest(f"queue is a MessageQueue or a function that chooses one, not {queue!r}")
    return IN_QUEUE


def _is_queue(queue: object) -> bool:
    return (
        isinstance(queue, MessageQueue)
        and isinstance(queue.topic, str)
        and isinstance(queue.number, int)
        and not isinstance(queue.number, bool)
        and 0 <= queue.number <= 2**31 - 1
    )


def prepare(
    outgoing: list[Outgoing],
    messages: Sequence[Message],
    way: Way,
    queue: Selector | None = None,
    due: Due | None = None,
) -> None:
    """Notes on messages what their way needs: each by itself, which queue was chosen for it, when it is due."""
    for one in singles(outgoing) if isinstance(way, Records) else ():
        if due is not None:
            one.due_ms = due.ms
        if queue is not None:
            one.chosen = queue if isinstance(queue, MessageQueue) else _Choice(queue, messages[one.at])


class _Choice:
    """A selector with its message."""

    __slots__ = ("_message", "_selector")

    def __init__(self, selector: Callable[[Sequence[MessageQueue], Message], MessageQueue], message: Message) -> None:
        self._selector = selector
        self._message = message

    def __call__(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        return self._selector(queues, self._message)


def runs_of_each(preparation: Preparation, messages: Sequence[Message], now_ms: int) -> list[Outgoing]:
    """Runs of the messages that are legal, and of each other one an ``Outgoing`` that has its error already."""
    messages = _listed(messages)
    try:
        return preparation.runs(messages, now_ms)
    except PenstockError:
        pass
    made: list[Outgoing] = []
    start = 0
    for at, message in enumerate(messages):
        try:
            preparation.runs((message,), now_ms)
        except PenstockError as error:
            made += _moved(preparation.runs(messages[start:at], now_ms), start)
            made.append(Outgoing(at, Run(b"", 0, 0, [b""]), "", ""))
            made[-1].fail(error)
            start = at + 1
    return made + _moved(preparation.runs(messages[start:], now_ms), start)


def _listed(messages: object) -> Sequence[Message]:
    if isinstance(messages, Message | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest(f"messages are a list of Message, not {messages!r:.100}")
    return messages if isinstance(messages, Sequence) else list(messages)


def _moved(outgoing: list[Outgoing], by: int) -> list[Outgoing]:
    for one in outgoing:
        one.at += by
    return outgoing


def address_of(broker: str, brokers: Sequence[BrokerRoute]) -> str:
    """The address of a broker. Raises ``NoRoute``."""
    for route in brokers:
        if route.broker == broker:
            return route.address
    raise NoRoute(f"{broker} is away")


def delayed_receipt(one: Outgoing, number: int = 0) -> DelayedReceipt:
    """The receipt of a message that sleeps until it is due."""
    assert one.queue is not None
    return DelayedReceipt(one.id_of(number), one.queue.broker, one.offset, one.due_ms, one.topic)


def cancel_of(receipt: object) -> CancelTimer:
    """The request that cancels a delayed message. Raises ``InvalidRequest`` unless given its receipt."""
    if not isinstance(receipt, DelayedReceipt):
        hint = "`send` with delay= or at= returns one"
        raise InvalidRequest(f"cancel takes a DelayedReceipt, not {receipt!r:.100}", hint=hint)
    return CancelTimer(receipt.timer, receipt.due_ms)


def receipts(outgoing: Sequence[Outgoing], way: Way) -> Sequence[Receipt] | list[DelayedReceipt]:
    """The receipts, in order. Raises ``SendManyError`` if a message has none."""
    if not isinstance(way, Later):
        return sending.receipts(outgoing)
    sending.check_all(outgoing, delayed_receipt)
    return [delayed_receipt(one) for one in outgoing]


def broker_of_chosen(one: Outgoing, brokers: Sequence[BrokerRoute]) -> BrokerRoute:
    """The broker of the queue that was chosen for a message; a selector chooses once, at the first attempt.

    Raises:
        NoRoute: that broker takes no messages now.
        InvalidRequest: what was chosen is no queue of the topic.
    """
    writable = sorted([route for route in brokers if route.writable], key=lambda route: route.broker)
    chosen = one.chosen
    if not isinstance(chosen, MessageQueue):
        assert chosen is not None
        queues = [MessageQueue(route.broker, one.topic, number) for route in writable for number in range(route.queues)]
        if not queues:
            raise NoRoute("no broker takes messages for this topic now")
        try:
            chosen = chosen(queues)
        except Exception as error:
            raise InvalidRequest(f"the selector of queues raised {error!r}") from error
        if chosen not in queues:
            raise InvalidRequest(
                f"the selector chose {chosen!r}, which is none of the {len(queues)} queues it was given"
            )
        one.chosen = chosen
    if chosen.topic != one.topic:
        raise InvalidRequest(f"{chosen} is no queue of topic {one.topic}")
    one.run.queue_id = chosen.number
    for route in writable:
        if route.broker == chosen.broker:
            return route
    raise NoRoute(f"{chosen.broker} takes no messages for topic {one.topic} now")


def body_of(batch: Sequence[Outgoing]) -> bytes:
    """The records of single messages, end to end."""
    return b"".join([record_of(one.run) for one in batch])
