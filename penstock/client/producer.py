"""Sends messages, on asyncio and on trio. penstock/client/sending.py decides what becomes of them; this module waits.

Concurrent sends coalesce: whatever was handed over for one broker since the last round leaves as one Append. One
deadline covers all attempts of a send. The number of messages under way is bounded: further sends wait for room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Final, overload

import anyio
import anyio.lowlevel

from penstock.client import sending
from penstock.client.arguments import OnlyAsync, check_seconds
from penstock.client.discovery import Discovery
from penstock.client.retry import TIMEOUT_S, BackOff, Telling
from penstock.client.sending import AVOID_S, Outgoing, Receipt, UniqueIds
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import WireLinks
from penstock.errors import InvalidRequest, PenstockError, TimedOut, Unavailable
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Links
from penstock.protocol.message import Message
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import TopicMap

_log = logging.getLogger(__name__)

PENDING_MAX: Final = 10_000


class _Attempt:
    """Set when all messages of one attempt have their result."""

    __slots__ = ("done", "left")

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = anyio.Event()

    def finish_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()


class _Lanes:
    """The open batch of each broker: what was handed over since the last round."""

    def __init__(self, discovery: Discovery, tasks: TaskScope) -> None:
        self._discovery = discovery
        self._tasks = tasks
        self._open: dict[BrokerRoute, list[tuple[Outgoing, _Attempt]]] = {}

    def hand_over(self, broker: BrokerRoute, one: Outgoing, attempt: _Attempt) -> None:
        """Has ``one`` sent with this round's batch, which leaves when every task that can run has run."""
        if not self._open:
            self._tasks.start_soon(self._flush)
        self._open.setdefault(broker, []).append((one, attempt))

    async def _flush(self) -> None:
        lanes, self._open = self._open, {}
        for broker, entries in lanes.items():
            link = self._discovery.link(broker.address)
            attempts = iter([attempt for _one, attempt in entries])
            for batch in sending.batches([one for one, _attempt in entries]):
                waiting = list(islice(attempts, len(batch)))
                link.submit(sending.append_of(batch), partial(self._settled, batch, waiting, broker.broker))
            link.flush()

    @staticmethod
    def _settled(batch: Sequence[Outgoing], waiting: list[_Attempt], broker: str, result: Result) -> None:
        sending.settle(batch, broker, result)
        for attempt in waiting:
            attempt.finish_one()


class Producer(OnlyAsync):
    """Sends messages to a cluster. Use it with ``async with``; one producer serves any number of tasks. At the end of
    the block it waits for what other tasks are still sending; not if the block ends with an error.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: deadline of a send over all its attempts.
        pending_max: messages under way at once; further sends wait.
        topic_map: where messages go that have an ``mqtt_topic`` and no topic; must be the gateways' map.
        links: ways to servers other than TCP, for programs that embed them.
    """

    def __init__(
        self,
        *,
        servers: str | Sequence[str] = SERVERS,
        timeout_s: float = TIMEOUT_S,
        pending_max: int = PENDING_MAX,
        topic_map: TopicMap | None = None,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self.timeout_s = timeout_s
        self._servers = servers
        self._links = links
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._topic_map = topic_map or TopicMap()
        self._back_off = BackOff()
        self._ids = UniqueIds(self._rng.getrandbits(64))
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
            tasks, self._tasks, self._discovery, self._lanes = self._tasks, None, None, None
            await tasks.close()

    @overload
    async def send(self, message: Message, /, *, timeout_s: float | None = None) -> Receipt: ...

    @overload
    async def send(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        key: str | bytes = "",
        tag: str = "",
        properties: Mapping[str, str] | None = None,
        mqtt_topic: str = "",
        qos: int = 1,
        retain: bool = False,
        timeout_s: float | None = None,
    ) -> Receipt: ...

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
        timeout_s: float | None = None,
    ) -> Receipt:
        """Stores one message and returns when its topic's level is reached.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic, InvalidRequest: it was not sent.
            PenstockError: it was not stored, unless the error's ``unknown`` is true: then it may have been.
        """
        outgoing = [self._prepare(sending.as_message(message, body, key, tag, properties, mqtt_topic, qos, retain))]
        await self._send_all(outgoing, self.timeout_s if timeout_s is None else timeout_s)
        receipt = outgoing[0].receipt
        if receipt is None:
            raise sending.final_error(outgoing[0])
        return receipt

    async def send_many(self, messages: Sequence[Message], *, timeout_s: float | None = None) -> list[Receipt]:
        """Stores messages, each on its own, and returns their receipts in order.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic: one of them is illegal and nothing was sent.
            SendManyError: some have no receipt; its ``failures`` say which and why.
        """
        outgoing = [self._prepare(message) for message in messages]
        await self._send_all(outgoing, self.timeout_s if timeout_s is None else timeout_s)
        return sending.receipts(outgoing)

    def _prepare(self, message: Message) -> Outgoing:
        return sending.prepare(message, self._ids.next(), self._topic_map, self._clock.wall_ms())

    # -- attempts

    async def _send_all(self, outgoing: list[Outgoing], timeout_s: float) -> None:
        """Attempts until each message has a receipt, an error that no repetition mends, or no time."""
        check_seconds("timeout_s", timeout_s)
        self._opened()
        waiting, repetition, began = outgoing, 0, self._clock.monotonic()
        telling = Telling(_log, began)
        self._under_way += 1
        try:
            with anyio.move_on_after(timeout_s):
                while waiting and (repetition == 0 or self._discovery is not None):  # else it was closed meanwhile
                    await self._try(waiting)
                    waiting, repetition = sending.once_more(waiting), repetition + 1
                    if waiting:
                        wait_s = self._back_off.wait_s(repetition, self._rng)
                        goes_on = self._clock.monotonic() + wait_s
                        telling.note(sending.final_error(waiting[0]), goes_on, began + timeout_s)
                        await anyio.sleep(wait_s)
        finally:
            self._under_way -= 1
            self._ended.set()
        for one in outgoing:
            if one.receipt is None and one.error is None:
                one.fail(_too_late(one, timeout_s))
                self._note_failure(one)

    async def _try(self, waiting: list[Outgoing]) -> None:
        """One attempt for all: each gets a receipt or an error."""
        await self._take_room(len(waiting))
        try:
            routed = await self._route(waiting)
            attempt = _Attempt(len(routed))
            for one in routed:
                self._hand_over(one, attempt)
            if routed:
                await attempt.done.wait()
        finally:
            self._pending -= len(waiting)
            self._room.set()
        for one in routed:
            if one.error is not None:
                self._note_failure(one)

    async def _route(self, waiting: list[Outgoing]) -> list[Outgoing]:
        """Those for which a broker was found; the others get their error."""
        discovery, _lanes = self._opened()
        now = self._clock.monotonic()
        avoid = [address for address, until in self._avoid.items() if now < until]
        self._turn += 1
        for one in waiting:
            one.broker = None
            try:
                brokers = discovery.known(one.topic) or await discovery.brokers(one.topic, create=True)
                one.broker = sending.choose(one.key, brokers, self._turn, avoid)
            except PenstockError as error:
                one.fail(error)
        return [one for one in waiting if one.broker is not None]

    def _hand_over(self, one: Outgoing, attempt: _Attempt) -> None:
        _discovery, lanes = self._opened()
        assert one.broker is not None
        one.error, one.on_way = None, True
        lanes.hand_over(one.broker, one, attempt)

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
