"""Sends messages, on asyncio and on trio. penstock/client/sending.py decides what becomes of them; this module waits.

Concurrent sends coalesce: whatever was handed over for one broker since the last round leaves as one request. One
deadline covers all attempts of a send. The number of messages under way is bounded: further sends wait for room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final, TypeVar, Unpack, overload

import anyio
import anyio.lowlevel

from penstock.client import preparation, sending, ways
from penstock.client.arguments import OnlyAsync, check_seconds
from penstock.client.checking import Checker
from penstock.client.delays import Delay, due_of
from penstock.client.discovery import Discovery
from penstock.client.halves import CHECK_S, Beginning, Half, Listener, begun, check_ended, check_group, ends_of
from penstock.client.preparation import Fields, messages_of
from penstock.client.retry import TIMEOUT_S, BackOff, Telling, worth_another_try
from penstock.client.sending import AVOID_S, Outgoing, Receipt, settled
from penstock.client.task_scope import TaskScope
from penstock.client.transaction import Transaction
from penstock.client.ways import ASLEEP, AT_ONCE, DelayedReceipt, Selector, Way
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import InvalidRequest, NoRoute, PenstockError, TimedOut, TimerNotFound, Unavailable
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Links
from penstock.protocol.message import Message
from penstock.protocol.requests.request import Done, Reply, Request, Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import CancelTimer
from penstock.protocol.requests.transactions import ROLLBACK, HalvesEnded
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import TopicMap

_log = logging.getLogger(__name__)

PENDING_MAX: Final = 10_000

_R = TypeVar("_R", bound=Reply)


class _Round:
    """What was handed over for one broker since the last request to it left: one request more. ``done`` is set when all
    of it has its result; every send in it waits for that.

    A *quick* one has single messages with the producer's own deadline, so that one deadline does for all: ``until``,
    in the loop's time. ``watched``: the quick ones without a result, in the order of their deadlines.
    """

    __slots__ = ("_watched", "bytes", "count", "done", "is_quick", "outgoing", "until", "way")

    def __init__(self, watched: dict[_Round, None], until: float | None, way: Way) -> None:
        self.way = way
        self.outgoing: list[Outgoing] = []
        self.bytes = self.count = 0
        self.done = anyio.Event()
        self.is_quick = until is not None
        self.until = until or 0.0
        self._watched = watched
        if self.is_quick:
            watched[self] = None

    def settle(self, broker: str, result: Result) -> None:
        self.way.settle(self.outgoing, broker, result)
        self._watched.pop(self, None)
        self.done.set()


class _Lanes:
    """The open requests of each broker."""

    def __init__(self, discovery: Discovery, tasks: TaskScope) -> None:
        self._discovery = discovery
        self._tasks = tasks
        self._open: dict[BrokerRoute, list[_Round]] = {}
        self._watched: dict[_Round, None] = {}
        self._some = anyio.Event()  # set when there is something to watch

    def hand_over(self, broker: BrokerRoute, one: Outgoing, quick_s: float | None = None, way: Way = AT_ONCE) -> _Round:
        """Has ``one`` sent with this round's requests, which leave when every task that can run has run. ``quick_s``:
        the producer's own time limit for a single message."""
        if not self._open:
            self._tasks.start_soon(self._flush)
        rounds = self._open.setdefault(broker, [])
        last = rounds[-1] if rounds else None
        if (
            last is None
            or last.is_quick != (quick_s is not None)
            or last.way is not way
            or not way.fits(last.bytes, last.count, one)
        ):
            last = _Round(self._watched, None if quick_s is None else anyio.current_time() + quick_s, way)
            rounds.append(last)
            if last.is_quick:
                self._some.set()
        last.outgoing.append(one)
        last.bytes += one.run.size
        last.count += one.count
        return last

    async def watch(self) -> None:
        """Ends quick rounds that have no result in time."""
        while True:
            if not self._watched:
                self._some = anyio.Event()
                await self._some.wait()
                continue
            first = next(iter(self._watched))
            left_s = first.until - anyio.current_time()
            if left_s > 0:
                await anyio.sleep(left_s)
            else:
                del self._watched[first]
                first.done.set()

    def close(self) -> None:
        """Nothing comes any more."""
        for one in self._watched:
            one.done.set()
        self._watched.clear()

    async def _flush(self) -> None:
        lanes, self._open = self._open, {}
        for broker, rounds in lanes.items():
            link = self._discovery.link(broker.address)
            for one in rounds:
                link.submit(one.way.request(one.outgoing), partial(one.settle, broker.broker))
            link.flush()


class Producer(OnlyAsync):
    """Sends messages to a cluster. Use it with ``async with``; one producer serves any number of tasks. At the end of
    the block it waits for what other tasks are still sending; not if the block ends with an error.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: deadline of a send over all its attempts.
        pending_max: messages under way at once; further sends wait.
        group: the producers that answer for each other's transactions; needed for ``transaction``.
        check: a listener, which is asked about transactions of the group without an outcome: an async function that is
            given a ``HalfMessage`` and returns ``"commit"``, ``"rollback"`` or ``"unknown"``. One that raises or takes
            longer than ``check_s`` is asked again later.
        topic_map: where messages go that have an ``mqtt_topic`` and no topic; must be the gateways' map.
        links: ways to servers other than TCP, for programs that embed them.
    """

    def __init__(
        self,
        *,
        servers: str | Sequence[str] = SERVERS,
        timeout_s: float = TIMEOUT_S,
        pending_max: int = PENDING_MAX,
        group: str = "",
        check: Listener | None = None,
        check_s: float = CHECK_S,
        topic_map: TopicMap | None = None,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        check_seconds("check_s", check_s)
        check_group(group, check)
        self.timeout_s = timeout_s
        self.group = group
        self._check = (check, check_s)
        self._beginning = Beginning(group)
        self._open_halves: set[tuple[str, int]] = set()
        self._servers = servers
        self._links = links
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._back_off = BackOff()
        self._preparation = preparation.Preparation(self._rng.getrandbits(64), topic_map or TopicMap())
        self._avoid: dict[str, float] = {}
        self._turn = 0
        self._pending = 0
        self._pending_max = pending_max
        self._room = anyio.Event()
        self._under_way = 0
        self._ended = anyio.Event()
        self._tasks: TaskScope | None = None
        self._discovery: Discovery | None = None
        self._lanes: _Lanes | None = None

    async def __aenter__(self) -> Producer:
        self._tasks = TaskScope()
        await self._tasks.open()
        links = self._links or WireLinks(self._tasks, clock=self._clock, rng=self._rng)
        self._discovery = Discovery(self._servers, links, clock=self._clock)
        self._lanes = _Lanes(self._discovery, self._tasks)
        self._tasks.start_soon(self._lanes.watch)
        listener, check_s = self._check
        if listener is not None:
            is_open = lambda broker, id: (broker, id) in self._open_halves  # noqa: E731
            checker = Checker(self.group, listener, check_s, is_open, self._discovery, self._tasks, self._rng)
            self._tasks.start_soon(checker.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            for _ in range(2 if kind is None else 0):  # what was started a moment ago has begun then
                await anyio.lowlevel.checkpoint()
            while kind is None and self._under_way:  # each ends by its own deadline
                self._ended = anyio.Event()
                await self._ended.wait()
        finally:
            assert self._tasks is not None
            assert self._lanes is not None
            tasks, lanes = self._tasks, self._lanes
            self._tasks = self._discovery = self._lanes = None
            try:
                await tasks.close()
            finally:
                lanes.close()

    @overload
    async def send(
        self, message: Message, /, *, queue: Selector | None = None, timeout_s: float | None = None
    ) -> Receipt: ...

    @overload
    async def send(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        queue: Selector | None = None,
        timeout_s: float | None = None,
        **fields: Unpack[Fields],
    ) -> Receipt: ...

    @overload
    async def send(self, message: Message, /, *, delay: Delay, timeout_s: float | None = None) -> DelayedReceipt: ...

    @overload
    async def send(
        self, message: Message, /, *, at: datetime | int, timeout_s: float | None = None
    ) -> DelayedReceipt: ...

    @overload
    async def send(
        self, topic: str, body: bytes, /, *, delay: Delay, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> DelayedReceipt: ...

    @overload
    async def send(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        at: datetime | int,
        timeout_s: float | None = None,
        **fields: Unpack[Fields],
    ) -> DelayedReceipt: ...

    async def send(
        self,
        message: Message | str,
        body: bytes = b"",
        /,
        *,
        key: str | bytes = "",
        tag: str = "",
        properties: Mapping[str, str] | None = None,
        mqtt_topic: str = "",
        qos: int = 1,
        retain: bool = False,
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> Receipt | DelayedReceipt:
        """Stores one message and returns when its topic's level is reached.

        Args:
            queue: the queue for it, or a function that chooses one: it is given all queues of the topic and the
                message, and called once. Without it the key decides.
            delay: how long it sleeps in the broker before it is delivered, at most 40 days: seconds, a ``timedelta``,
                or RocketMQ's levels and other words like them: ``"30s"``, ``"10m"``, ``"2h"``.
            at: when it is delivered: a ``datetime`` with a time zone, or milliseconds since 1970.
            timeout_s: deadline over all attempts; without it the producer's.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic, InvalidRequest: it was not sent.
            PenstockError: it was not stored, unless the error's ``unknown`` is true: then it may have been.
        """
        given = (preparation.as_message(message, body, key, tag, properties, mqtt_topic, qos, retain),)
        [one] = self._preparation.runs(given, self._clock.wall_ms())
        self._opened()
        way = ways.way_of(queue, due := due_of(delay, at))
        ways.prepare([one], given, way, queue, due)
        if timeout_s is not None or way is not AT_ONCE or not await self._send_quickly(one):
            await self._send_all([one], self.timeout_s if timeout_s is None else timeout_s, way=way)
        if one.queue is None:
            raise sending.final_error(one)
        return one.receipt(0) if one.queue.number != ASLEEP else ways.delayed_receipt(one)

    @overload
    async def send_many(
        self, messages: Sequence[Message], *, queue: Selector | None = None, timeout_s: float | None = None
    ) -> Sequence[Receipt]: ...

    @overload
    async def send_many(
        self, messages: Sequence[Message], *, delay: Delay, timeout_s: float | None = None
    ) -> Sequence[DelayedReceipt]: ...

    @overload
    async def send_many(
        self, messages: Sequence[Message], *, at: datetime | int, timeout_s: float | None = None
    ) -> Sequence[DelayedReceipt]: ...

    async def send_many(
        self,
        messages: Sequence[Message],
        *,
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[Receipt] | Sequence[DelayedReceipt]:
        """Stores messages, each on its own, and returns their receipts in order. Neighbours that differ in their bodies
        alone, which have one size, cost the least; without a key they go to one queue together. Args as for ``send``.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic: one of them is illegal and nothing was sent.
            SendManyError: some have no receipt; its ``failures`` say which and why.
        """
        outgoing = self._preparation.runs(messages, self._clock.wall_ms())
        self._opened()
        way = ways.way_of(queue, due := due_of(delay, at))
        ways.prepare(outgoing, messages, way, queue, due)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return ways.receipts(await self._send_all(outgoing, limit_s, way=way), way)

    async def cancel(self, receipt: DelayedReceipt, *, timeout_s: float | None = None) -> None:
        """Takes a delayed message back.

        Raises:
            TimerFired: it was delivered already.
            TimerNotFound: there is no such message; it may have been cancelled before.
            PenstockError: the broker could not be asked; ``unknown``: the message may be cancelled all the same.
        """
        cancel = CancelTimer(receipt.timer, receipt.due_ms)
        try:
            await self._ask_broker(receipt.broker, "", cancel, Done, timeout_s)
        except TimerNotFound as error:
            if not error.unknown:  # else an attempt before has cancelled it
                raise

    # -- transactions

    @overload
    def transaction(
        self, message: Message | Sequence[Message], /, *, timeout_s: float | None = None
    ) -> Transaction: ...

    @overload
    def transaction(
        self, topic: str, body: bytes, /, *, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> Transaction: ...

    def transaction(
        self,
        message: Message | Sequence[Message] | str,
        body: bytes = b"",
        /,
        *,
        timeout_s: float | None = None,
        **fields: Unpack[Fields],
    ) -> Transaction:
        """A block that stores messages as it begins and has them delivered when it has ended without an error::

            async with producer.transaction("payments", body, key="order-7") as tx:
                await database.execute(...)

        An error rolls them back. Several messages are each delivered once, or all of them never.

        Raises:
            InvalidRequest, TooLarge, InvalidMessage, InvalidTopic: nothing was stored.
            PenstockError: as the block begins: it is not to be carried out; no message is delivered, unless the error
                is ``unknown`` and a listener commits it. As it ends: the commit was refused; with ``unknown`` there is
                no answer for certain, and a listener decides.
        """
        if not self.group:
            raise InvalidRequest("transactions are a group's", hint="Producer(group=..., check=...)")
        given = messages_of(message, body, fields)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        return Transaction(partial(self._begin, given, limit_s), partial(self._end, limit_s))

    async def _begin(self, messages: Sequence[Message], limit_s: float) -> list[Half]:
        outgoing = self._preparation.runs(messages, self._clock.wall_ms())
        self._opened()
        ways.prepare(outgoing, messages, self._beginning)
        halves, error = begun(await self._send_all(outgoing, limit_s, way=self._beginning))
        if error is not None:
            if halves:
                with suppress(PenstockError):  # else a listener is asked
                    await self._end(limit_s, halves, ROLLBACK)
            raise error
        self._open_halves.update([(half.broker, half.id) for half in halves])
        return halves

    async def _end(self, limit_s: float, halves: Sequence[Half], outcome: str) -> None:
        """The block of these halves has ended: gives them their outcome, and raises the first error."""
        self._open_halves.difference_update([(half.broker, half.id) for half in halves])
        errors: list[PenstockError] = []
        for at, request in ends_of(self.group, halves, outcome):
            try:
                check_ended(await self._ask_broker(at.broker, at.address, request, HalvesEnded, limit_s))
            except PenstockError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # -- attempts

    async def _send_quickly(self, one: Outgoing) -> bool:
        """An attempt for a single message that needs no deadline of its own. Returns ``False`` where it cannot be made
        so, and nothing was done."""
        discovery, lanes = self._opened()
        brokers = discovery.known(one.topic)
        if not brokers or self._avoid or self._pending + 1 > self._pending_max:
            return False
        self._turn += 1
        try:
            one.broker = sending.choose(one.key, brokers, self._turn)
        except NoRoute:
            return False
        one.on_way = True
        self._under_way += 1
        self._pending += 1
        try:
            limit_s = self.timeout_s
            handed_over = lanes.hand_over(one.broker, one, limit_s)
            await handed_over.done.wait()
            if one.queue is not None:
                return True
            if one.error is None:
                one.fail(_too_late(one, limit_s))
            self._note_failure(one)
        finally:
            self._under_way -= 1
            self._pending -= 1
            self._room.set()
            if not self._under_way:
                self._ended.set()
        left_s = handed_over.until - anyio.current_time()
        if sending.once_more([one]) and left_s > 0:
            await self._send_all([one], left_s, 1)
        return True

    async def _send_all(
        self, outgoing: list[Outgoing], limit_s: float, repetition: int = 0, way: Way = AT_ONCE
    ) -> list[Outgoing]:
        """Attempts until each message is stored, has an error that no repetition mends, or no time. ``repetition``: how
        many attempts there were."""
        check_seconds("timeout_s", limit_s)
        waiting, began = settled(outgoing), self._clock.monotonic()
        telling = Telling(_log, began)
        self._under_way += 1
        try:
            with anyio.move_on_after(limit_s):
                if repetition:
                    await anyio.sleep(self._back_off.wait_s(repetition, self._rng))
                while waiting and (repetition == 0 or self._discovery is not None):  # else it was closed meanwhile
                    await self._try(waiting, way)
                    waiting, repetition = way.again(settled(waiting)), repetition + 1
                    if waiting:
                        wait_s = self._back_off.wait_s(repetition, self._rng)
                        goes_on = self._clock.monotonic() + wait_s
                        telling.note(sending.final_error(waiting[0]), goes_on, began + limit_s)
                        await anyio.sleep(wait_s)
        finally:
            self._under_way -= 1
            self._ended.set()
        outgoing = settled(outgoing)
        for one in outgoing:
            if one.queue is None and one.error is None:
                one.fail(_too_late(one, limit_s))
                self._note_failure(one)
        return outgoing

    async def _try(self, waiting: list[Outgoing], way: Way) -> None:
        """One attempt for all: each gets a place or an error."""
        count = sum([one.count for one in waiting])
        await self._take_room(count)
        try:
            routed = await self._route(waiting)
            for round_ in dict.fromkeys([self._hand_over(one, way) for one in routed]):
                await round_.done.wait()
        finally:
            self._pending -= count
            self._room.set()
        for one in settled(routed):
            if one.error is not None:
                self._note_failure(one)

    async def _route(self, waiting: list[Outgoing]) -> list[Outgoing]:
        """Those for which a broker was found; the others get their error."""
        discovery, _lanes = self._opened()
        if self._avoid:
            now = self._clock.monotonic()
            self._avoid = {address: until for address, until in self._avoid.items() if now < until}
        self._turn += 1
        for one in waiting:
            one.broker = None
            try:
                brokers = discovery.known(one.topic) or await discovery.brokers(one.topic, create=True)
                if one.chosen is None:
                    one.broker = sending.choose(one.key, brokers, self._turn, self._avoid)
                else:
                    one.broker = ways.broker_of_chosen(one, brokers)
            except PenstockError as error:
                one.fail(error)
        return [one for one in waiting if one.broker is not None]

    def _hand_over(self, one: Outgoing, way: Way) -> _Round:
        _discovery, lanes = self._opened()
        assert one.broker is not None
        one.error, one.on_way = None, True
        return lanes.hand_over(one.broker, one, None, way)

    async def _ask_broker(
        self, name: str, address: str, request: Request, kind: type[_R], timeout_s: float | None
    ) -> _R:
        """What a broker answers, asked until the deadline. ``address``: where it was a moment ago, if known. An error
        is ``unknown`` if any attempt may have done what was asked."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        deadline, attempt, unknown = self._clock.monotonic() + limit_s, 0, False
        while True:
            try:
                discovery, _lanes = self._opened()
                address = address or ways.address_of(name, await discovery.all_brokers())
                return await ask(discovery.link(address), request, kind, deadline - self._clock.monotonic())
            except PenstockError as error:
                unknown = unknown or error.unknown
                wait_s = self._back_off.wait_s(attempt := attempt + 1, self._rng)
                if not worth_another_try(error, self._clock.monotonic() + wait_s, deadline):
                    raise sending.known_or_not(error, unknown) from None
            address = ""
            await anyio.sleep(wait_s)

    def _opened(self) -> tuple[Discovery, _Lanes]:
        if self._discovery is None or self._lanes is None:
            raise InvalidRequest("this producer is not open", hint="use it inside `async with Producer(...) as p:`")
        return self._discovery, self._lanes

    def _note_failure(self, one: Outgoing) -> None:
        """Goes round a broker that cannot be reached, and asks the name servers again who has the topic."""
        if one.broker is not None and isinstance(one.error, Unavailable | TimedOut) and self._discovery is not None:
            self._avoid[one.broker.address] = self._clock.monotonic() + AVOID_S
            self._discovery.forget(one.topic)

    async def _take_room(self, count: int) -> None:
        while self._pending and self._pending + count > self._pending_max:
            self._room = anyio.Event()
            await self._room.wait()
        self._pending += count


def _too_late(one: Outgoing, timeout_s: float) -> TimedOut:
    """The deadline passed without a result: unknown if the message had been handed over, else it was never sent."""
    if one.on_way:
        return TimedOut(f"no receipt within {timeout_s:g} s", hint="whether the message is stored is unknown")
    error = TimedOut(f"not sent within {timeout_s:g} s")
    error.unknown = False
    return error
