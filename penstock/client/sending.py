"""Decisions about sent messages: where they go, how they are batched, which receipt or error each one gets.

Pure; penstock/client/outbox.py and penstock/blocking/producer.py do the waiting. An ``Outgoing`` is
messages on their way, which have all in common but their bodies and a unique id that counts: a run. Tail and ids are
made once and are the same in every attempt, so that the broker that may have the messages knows them when they come
again. It ends with a place or an error; the error says ``unknown`` if *any* attempt may have stored the messages.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, overload

from penstock import errors
from penstock.errors import (
    InternalError,
    InvalidTopic,
    MessageForgotten,
    NoRoute,
    PenstockError,
    SendManyError,
    Unavailable,
)
from penstock.protocol.message import FLAG_SEQUENCED, UNIQUE_KEY
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Appended, AppendRuns, PlacedRun
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.runs import DIGITS, Run, checksum_of, encode_runs
from topicmap.names import InvalidName
from topicmap.queues import check_topic

BATCH_BYTES_MAX: Final = 1024 * 1024
BATCH_COUNT_MAX: Final = 4096
ROUTE_FRESH_S: Final = 30.0
"""How long a client goes by what a name server said about a topic."""
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes of messages of one ``send_many`` that are under way at once."""
_ID: Final = UNIQUE_KEY.encode() + b"\x01"


UNKNOWN_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Receipt:
    """The place of a stored message.

    Attributes:
        id: its unique id, made by the producer.
        queue, offset: its place; ``penstock consume`` shows the same. Both numbers are -1 of a message that an earlier
            attempt has stored, where the broker does not know any more where.
        level: the level that it has reached, ``cache``, ``disk`` or ``quorum``; never less than its topic's level.
        status: always ``"ok"``: a message that was not stored, or may not have been, is an error.
    """

    id: str
    queue: MessageQueue
    offset: int
    level: str
    status: Literal["ok"] = "ok"

    @property
    def topic(self) -> str:
        """The topic that it is stored in."""
        return self.queue.topic


Chosen = MessageQueue | Callable[[Sequence[MessageQueue]], MessageQueue]
"""A queue to send to, or what chooses it among all queues of the topic that take messages."""


class Outgoing:
    """Messages on their way, which are stored together or not at all.

    Attributes:
        at: the place of the first one among all that were sent together.
        run: the messages.
        topic, key: of all.
        queue, offset, level: the place of the first one, and the level that all have reached; no queue: they are not
        stored.
        error: why not, in the latest attempt. ``unknown``: whether any attempt may have stored them.
        broker: to whom the latest attempt went. ``on_way``: handed over in it, without a result yet.
        home: the broker that may have them, and knows them when they come again; empty as long as there is none.
            ``asks_home``: the connection to it was lost, and they have not been there again.
        chosen: the queue that a program has chosen, or what chooses it at the first attempt.
        due_ms: of a delayed message, when it is due: as it is asked for, then as the broker has it.
        parts: the receipts in its place, if its messages had different fates.
        common: what others may have in common with it: those whose numbers count on from its own go on with its run.
            ``None``: nothing.
    """

    __slots__ = (
        "asks_home",
        "at",
        "broker",
        "chosen",
        "common",
        "due_ms",
        "error",
        "home",
        "key",
        "level",
        "offset",
        "on_way",
        "parts",
        "queue",
        "run",
        "topic",
        "unknown",
    )

    def __init__(self, at: int, run: Run, topic: str, key: str | bytes, common: object = None) -> None:
        self.at = at
        self.common = common
        self.run = run
        self.topic = topic
        self.key = key
        self.queue: MessageQueue | None = None
        self.offset = -1
        self.level = ""
        self.error: PenstockError | None = None
        self.unknown = False
        self.broker: BrokerRoute | None = None
        self.on_way = False
        self.home, self.asks_home = "", False
        self.chosen: Chosen | None = None
        self.due_ms = 0
        self.parts: list[Outgoing] = []

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.run.bodies)

    def fail(self, error: PenstockError) -> None:
        self.error = error
        self.on_way = False
        self.unknown = self.unknown or error.unknown
        if error.unknown and not self.home and self.broker is not None and self.run.flag & FLAG_SEQUENCED:
            self.home, self.asks_home = self.broker.broker, isinstance(error, Unavailable)
        if isinstance(error, MessageForgotten) and not self.unknown:
            self.run.flag &= ~FLAG_SEQUENCED  # no attempt has stored them, so another one may

    def stored(self, queue: MessageQueue, offset: int, level: str) -> None:
        """They are stored, the first one there."""
        self.queue, self.offset, self.level = queue, offset, level
        self.error, self.on_way = None, False

    def split(self) -> list[Outgoing]:
        """One for each message, which stand for it from now on."""
        run = self.run
        has_ids = not run.counts or run.number >= 0
        self.parts = [
            Outgoing(self.at + number, run.of([body], number if has_ids else 0), self.topic, self.key, self.common)
            for number, body in enumerate(run.bodies)
        ]
        for part in self.parts:
            part.unknown, part.broker, part.on_way, part.home = self.unknown, self.broker, self.on_way, self.home
            part.asks_home = self.asks_home
            part.chosen, part.due_ms = self.chosen, self.due_ms
        return self.parts

    def receipt(self, number: int) -> Receipt:
        """The receipt of a message, all being stored."""
        assert self.queue is not None
        offset = self.offset + number if self.offset >= 0 else UNKNOWN_OFFSET
        return Receipt(self.id_of(number), self.queue, offset, self.level)

    def id_of(self, number: int) -> str:
        """The unique id of a message."""
        tail = self.run.tail_of(number)
        return tail[tail.rindex(_ID) + len(_ID) :].decode()  # the last property


def settled(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """The messages that stand for these by now."""
    found: list[Outgoing] = []
    for one in outgoing:
        found += one.parts or [one]
    return found


class Receipts(Sequence[Receipt]):
    """Receipts in the order of their messages. Each is made when it is looked at."""

    def __init__(self, outgoing: Sequence[Outgoing]) -> None:
        self._outgoing = outgoing
        self._starts = [one.at for one in outgoing]
        self._count = sum([one.count for one in outgoing])

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Receipt: ...

    @overload
    def __getitem__(self, at: slice) -> list[Receipt]: ...

    def __getitem__(self, at: int | slice) -> Receipt | list[Receipt]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(self._count))]
        number = at + self._count if at < 0 else at
        if not 0 <= number < self._count:
            raise IndexError(f"there are {self._count} receipts, no number {at}")
        one = self._outgoing[bisect_right(self._starts, number) - 1]
        return one.receipt(number - one.at)

    def __iter__(self) -> Iterator[Receipt]:
        for one in self._outgoing:
            for number in range(one.count):
                yield one.receipt(number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))


def check_makeable(topic: str) -> None:
    """Raises ``InvalidTopic`` for a topic that no producer may have made: what it sends there is refused."""
    if topic in GATEWAYS_TOPICS:
        raise InvalidTopic(f"only gateways publish under {topic!r}")
    _check_topic(topic)


def nobody_has(topic: str) -> NoRoute:
    """The error for a topic that no live broker has. Raises ``InvalidTopic`` for what is none."""
    _check_topic(topic)
    return NoRoute(f"no live broker has topic {topic!r}", hint=f"`penstock topic create {topic}` creates it")


def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidName as error:
        hint = "a message with the MQTT name a/b is in the topic a, its first level" if "/" in topic else ""
        raise InvalidTopic(str(error), hint=hint) from None


def maker_of(topic: str, live: Sequence[BrokerRoute]) -> BrokerRoute:
    """The live broker that creates a topic which no broker has. All clients and gateways choose the same one, so that
    it is created once."""
    return sorted(live, key=lambda one: one.broker)[zlib.crc32(topic.encode()) % len(live)]


def broker_for(
    one: Outgoing, brokers: Sequence[BrokerRoute], turn: int, avoid: Collection[str], may_leave: bool
) -> BrokerRoute:
    """The broker to send to: that which may have the messages, else as ``choose``. Those that ``may_leave`` it go there
    once more where the connection to it was lost. Raises ``NoRoute``."""
    if one.home and (one.asks_home or not may_leave):
        one.asks_home = False
        for broker in brokers:
            if broker.broker == one.home:
                return broker
        if not may_leave:
            raise NoRoute(f"no live broker {one.home}, which may have the message", hint="it is known there only")
    return choose(one.key, brokers, turn, avoid)


_NONE_WRITES: Final = "an operator has stopped writing: `penstock broker list` and `penstock topic show` say where"


def choose(key: str | bytes, brokers: Sequence[BrokerRoute], turn: int, avoid: Collection[str] = ()) -> BrokerRoute:
    """The broker to send to. One key stays with one broker, whatever happens to it, for its order; messages without a
    key take turns and go round the brokers at the addresses to ``avoid``. Raises ``NoRoute``."""
    if key and brokers and brokers[0].places:
        return _fixed(key, brokers)
    if len(brokers) == 1 and brokers[0].writable:
        return brokers[0]
    writable = sorted((one for one in brokers if one.writable), key=lambda one: one.broker)
    if not writable:
        raise NoRoute("no broker takes messages for this topic just now", hint=_NONE_WRITES)
    if key:
        # The broker chooses the queue by the same hash: other bits, or each broker would use a part of its queues only.
        return writable[(zlib.crc32(key.encode() if isinstance(key, str) else key) >> 16) % len(writable)]
    good = [one for one in writable if one.address not in avoid] or writable
    return good[turn % len(good)]


def _fixed(key: str | bytes, brokers: Sequence[BrokerRoute]) -> BrokerRoute:
    """The broker of a key in an ordered topic, which waits for it. Raises ``NoRoute``."""
    place = (zlib.crc32(key.encode() if isinstance(key, str) else key) >> 16) % brokers[0].places
    for one in brokers:
        if one.place == place and one.writable:
            return one
    raise NoRoute(
        "the broker that has the messages of this key is away, and the topic is ordered",
        hint="`penstock config list ORDER_TOPIC_CONFIG` shows its brokers",
    )


def fits(batch_bytes: int, batch_count: int, one: Outgoing) -> bool:
    """Whether one more goes into a request that has these numbers of bytes and messages."""
    return not batch_count or (
        batch_bytes + one.run.size <= BATCH_BYTES_MAX and batch_count + one.count <= BATCH_COUNT_MAX
    )


def batches(
    outgoing: Sequence[Outgoing], has_room: Callable[[int, int, Outgoing], bool] = fits
) -> Iterator[Sequence[Outgoing]]:
    """Cuts messages into pieces that fit one request, in order."""
    start = size = count = 0
    for at, one in enumerate(outgoing):
        if not has_room(size, count, one):
            yield outgoing[start:at]
            start, size, count = at, 0, 0
        size += one.run.size
        count += one.count
    if start < len(outgoing):
        yield outgoing[start:]


def windows(outgoing: list[Outgoing]) -> Iterator[list[Outgoing]]:
    """Cuts messages into pieces that are under way at once, in order."""
    start = size = 0
    for at, one in enumerate(outgoing):
        if size and size + one.run.size > WINDOW_BYTES:
            yield outgoing[start:at]
            start = at
            size = 0
        size += one.run.size
    if start < len(outgoing):
        yield outgoing[start:] if start else outgoing


def append_of(batch: Sequence[Outgoing]) -> AppendRuns:
    """The request that stores a batch and tells where each run went. Neighbours whose ids go on are one run there."""
    runs: list[Run] = []
    last: Outgoing | None = None
    count = following = 0
    for one in batch:
        run = one.run
        its = len(run.bodies)
        count += its
        if (
            last is not None
            and run.number == following
            and one.common is last.common
            and one.common is not None
            and run.flag == last.run.flag
            and run.born_ms == last.run.born_ms
            and run.unusual == last.run.unusual
            and len(run.bodies[0]) == len(last.run.bodies[0])
            and run.tail[:-DIGITS] == last.run.tail[:-DIGITS]  # else one has its number from another broker
        ):
            if runs[-1] is last.run:
                runs[-1] = last.run.of(list(last.run.bodies))
            runs[-1].bodies += run.bodies
        else:
            last = one
            runs.append(run)
        following = run.number + its
    body = encode_runs(runs)
    return AppendRuns(count, checksum_of(body), body, detail=True)


def settle(batch: Sequence[Outgoing], broker: str, result: Result) -> None:
    """Gives all messages of a batch their places or errors."""
    if not isinstance(result, PenstockError) and not isinstance(result, Appended):
        result = InternalError("the broker's answer does not fit the batch")
        result.unknown = True
    if isinstance(result, PenstockError):
        for one in batch:
            one.fail(result)
        return
    refused = {one.at: errors.from_wire(one.code, one.message) for one in result.refused}
    rows = [*result.runs, _NO_ROW]
    at, which, queues = 0, -1, dict[tuple[str, int], MessageQueue]()
    for one in batch:
        end = at + one.count
        while rows[which + 1].at <= at:
            which += 1
        is_refused = bool(refused) and not refused.keys().isdisjoint(range(at, end))
        pieces = one.split() if one.count > 1 and (rows[which + 1].at < end or is_refused) else [one]
        for piece in pieces:
            while rows[which + 1].at <= at:
                which += 1
            row = rows[which] if which >= 0 else _NO_ROW
            error = refused.get(at)
            if error is None and row is _NO_ROW:
                error = InternalError("the broker's answer does not fit the batch")
                error.unknown = True
            if error is not None:
                piece.fail(error)
            else:
                is_known = row.offset >= 0
                name = (piece.topic, row.queue_id if is_known else UNKNOWN_OFFSET)
                queue = queues.get(name) or queues.setdefault(name, MessageQueue(broker, *name))
                piece.stored(queue, row.offset + at - row.at if is_known else UNKNOWN_OFFSET, result.level)
            at += piece.count


_NO_ROW: Final = PlacedRun(1 << 62, 0, 0, 0)


def once_more(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """The messages that another attempt may store."""
    return [one for one in outgoing if one.error is not None and (one.error.retryable or _is_free_again(one))]


def _is_free_again(one: Outgoing) -> bool:
    return isinstance(one.error, MessageForgotten) and not one.unknown


def receipts(outgoing: Sequence[Outgoing]) -> Receipts:
    """The receipts, in order. Raises ``SendManyError`` if a message has none."""
    check_all(outgoing, Outgoing.receipt)
    return Receipts(outgoing)


def check_all(outgoing: Sequence[Outgoing], receipt_of: Callable[[Outgoing, int], object]) -> None:
    """Raises ``SendManyError`` unless all messages are stored; ``receipt_of`` makes the receipts of those that are."""
    if all([one.queue is not None for one in outgoing]):
        return
    failures: dict[int, PenstockError] = {}
    given: list[object | None] = []
    for one in outgoing:
        if one.queue is None:
            error = final_error(one)
            failures.update(dict.fromkeys(range(one.at, one.at + one.count), error))
            given += [None] * one.count
        else:
            given += [receipt_of(one, number) for number in range(one.count)]
    unknown = sum(error.unknown for error in failures.values())
    first = next(iter(failures.values()))
    raise SendManyError(
        f"{len(failures)} of {len(given)} messages have no receipt ({unknown} may be stored); first: {first}",
        tuple(given),
        failures,
    )


def final_error(one: Outgoing) -> PenstockError:
    """The error of messages without a receipt; ``unknown`` if any attempt may have stored them."""
    assert one.error is not None
    return known_or_not(one.error, one.unknown)


def known_or_not(error: PenstockError, unknown: bool) -> PenstockError:
    """An error that says ``unknown`` if an earlier attempt may have been carried out."""
    if unknown and not error.unknown:
        error = type(error)(error.message, hint=error.hint)
        error.unknown = True
    return error
