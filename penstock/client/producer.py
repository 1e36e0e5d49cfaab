"""Sends messages, on asyncio and on trio: what programs call. penstock/client/outbox.py has them stored.

Concurrent sends coalesce: whatever was handed over for one broker since the last round leaves as one request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Unpack, overload

from penstock.client import preparation, sending, ways
from penstock.client.arguments import OnlyAsync, check_seconds
from penstock.client.checking import Checker
from penstock.client.delays import Delay, due_of
from penstock.client.devices import DeviceFields, device_message
from penstock.client.halves import CHECK_S, Half, Listener, check_group
from penstock.client.outbox import Outbox
from penstock.client.outcomes import Outcome, outcome_of, outcomes_of
from penstock.client.preparation import Fields, messages_of
from penstock.client.replies import reply_of
from penstock.client.requesting import Requests
from penstock.client.retry import TIMEOUT_S
from penstock.client.sending import Receipt
from penstock.client.transaction import Transaction, Transactions
from penstock.client.ways import ASLEEP, AT_ONCE, DelayedReceipt, Selector
from penstock.errors import InvalidRequest, PenstockError, SendManyError, TimerNotFound
from penstock.protocol.addresses import SERVERS
from penstock.protocol.compression import Compression
from penstock.protocol.link import Links
from penstock.protocol.message import Message
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.timers import CancelTimer
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import TopicMap

PENDING_MAX: Final = 10_000

_log = logging.getLogger(__name__)


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
        idempotent: whether a broker stores what comes to it again once, and answers as it did the first time.
        failover: whether a message without a key may go to another broker where it is unknown whether one has stored
            it. Then it may be stored twice; else the send fails with such an error if that broker stays away.
        compression: ``"zstd"``, ``"lz4"`` or ``"zlib"``: bodies of more than 4 KiB are stored compressed where that
            makes them smaller, but never of a message that has a name of MQTT or is retained.
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
        idempotent: bool = True,
        failover: bool = True,
        compression: Compression = "",
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
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        random_bits, topics = self._rng.getrandbits(64), topic_map or TopicMap()
        self._preparation = preparation.Preparation(
            random_bits, topics, is_idempotent=idempotent, compression=compression
        )
        number = self._preparation.number
        self._outbox = Outbox(servers, timeout_s, pending_max, links, self._clock, self._rng, number, failover)
        self._transactions = Transactions(group, self._outbox)
        self._requests = Requests(self._outbox, self._clock, self._rng)

    async def __aenter__(self) -> Producer:
        tasks, discovery = await self._outbox.open()
        listener, limit_s = self._check
        if listener is not None:
            is_open = self._transactions.is_open
            tasks.start_soon(Checker(self.group, listener, limit_s, is_open, discovery, tasks, self._rng).run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is None:
            await self._requests.close()
        await self._outbox.close(in_peace=kind is None)

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
        shard: str = "",
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> Receipt | DelayedReceipt:
        """Stores one message and returns when its topic's level is reached.

        Args:
            shard: chooses the queue in place of the key, which then only finds it: messages of one shard keep their
                order. It is the property ``__SHARDINGKEY``.
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
        given = (preparation.as_message(message, body, key, tag, properties, mqtt_topic, qos, retain, shard),)
        [one] = self._preparation.runs(given, self._clock.wall_ms())
        self._outbox.opened()
        way = ways.way_of(queue, due := due_of(delay, at))
        ways.prepare([one], given, way, queue, due)
        if timeout_s is not None or way is not AT_ONCE or not await self._outbox.send_quickly(one):
            await self._outbox.send_all([one], self.timeout_s if timeout_s is None else timeout_s, way=way)
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
            SendManyError: some have no receipt, because they are illegal or were not stored; its ``failures`` say
                which and why.
        """
        outgoing = ways.runs_of_each(self._preparation, messages, self._clock.wall_ms())
        self._outbox.opened()
        way = ways.way_of(queue, due := due_of(delay, at))
        ways.prepare(outgoing, messages, way, queue, due)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return ways.receipts(await self._outbox.send_all(outgoing, limit_s, way=way), way)

    async def send_each(
        self,
        messages: Sequence[Message],
        *,
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> list[Outcome]:
        """As ``send_many``, with an outcome for each message in place of receipts and errors."""
        how: dict[str, Any] = {"queue": queue, "delay": delay, "at": at, "timeout_s": timeout_s}
        try:
            return [outcome_of(one) for one in await self.send_many(messages, **how)]
        except SendManyError as error:
            return outcomes_of(error)

    def send_soon(
        self,
        message: Message | str,
        body: bytes = b"",
        /,
        *,
        on_done: Callable[[Outcome], object] | None = None,
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
        **fields: Unpack[Fields],
    ) -> None:
        """Sends one message in a task of the producer's, and returns at once. ``on_done`` is called in the event loop
        with what became of it, whatever that is. The end of the block waits for it. Args as for ``send``.

        Raises:
            Busy: as many messages as ``pending_max`` are under way.
            InvalidRequest: the producer is not open.
        """
        how: dict[str, Any] = {"queue": queue, "delay": delay, "at": at, "timeout_s": timeout_s}
        self._outbox.start(self._tell, partial(self.send, message, body, **how, **fields), on_done)

    async def _tell(
        self, send: Callable[[], Awaitable[Receipt | DelayedReceipt]], on_done: Callable[[Outcome], object] | None
    ) -> None:
        try:
            outcome = outcome_of(await send())
        except PenstockError as error:
            outcome = outcome_of(error)
        try:
            if on_done is not None:
                on_done(outcome)
            elif outcome.error is not None:
                _log.warning("a message is %s: %s", outcome.status, outcome.error)
        except Exception:
            _log.exception("on_done raised")

    @overload
    async def send_oneway(self, message: Message, /) -> None: ...

    @overload
    async def send_oneway(self, topic: str, body: bytes, /, **fields: Unpack[Fields]) -> None: ...

    async def send_oneway(self, message: Message | str, body: bytes = b"", /, **fields: Unpack[Fields]) -> None:
        """Sends one message without waiting for an acknowledgement: it is not sent again, and may be lost. The end of
        the block waits a moment for what has left.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic, NoRoute, Unavailable: it was not sent.
        """
        [one] = self._preparation.runs((preparation.as_message(message, body, **fields),), self._clock.wall_ms())
        await self._outbox.send_oneway(one)

    @overload
    async def send_to_device(
        self,
        client_id: str,
        body: bytes,
        /,
        *,
        delay: None = None,
        at: None = None,
        timeout_s: float | None = None,
        **fields: Unpack[DeviceFields],
    ) -> Receipt: ...

    @overload
    async def send_to_device(
        self,
        client_id: str,
        body: bytes,
        /,
        *,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
        **fields: Unpack[DeviceFields],
    ) -> Receipt | DelayedReceipt: ...

    async def send_to_device(
        self,
        client_id: str,
        body: bytes,
        /,
        *,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
        **fields: Unpack[DeviceFields],
    ) -> Receipt | DelayedReceipt:
        """Stores a message for one device, which gets it now, or when it comes back to its session: it must have
        subscribed to ``$p2p/CLIENT_ID``. ``penstock.device_message`` makes the same message for ``send_many`` and
        transactions. Args and errors as for ``send``; ``InvalidRequest`` where no name stands for a client id."""
        message = device_message(client_id, body, **fields)
        if delay is not None:
            return await self.send(message, delay=delay, timeout_s=timeout_s)
        if at is not None:
            return await self.send(message, at=at, timeout_s=timeout_s)
        return await self.send(message, timeout_s=timeout_s)

    async def cancel(self, receipt: DelayedReceipt, *, timeout_s: float | None = None) -> None:
        """Takes a delayed message back.

        Raises:
            TimerFired: it was delivered already.
            TimerNotFound: there is no such message; it may have been cancelled before.
            PenstockError: the broker could not be asked; ``unknown``: the message may be cancelled all the same.
        """
        cancel = CancelTimer(receipt.timer, receipt.due_ms)
        try:
            await self._outbox.ask_broker(receipt.broker, "", cancel, Done, timeout_s)
        except TimerNotFound as error:
            if not error.unknown:  # else an attempt before has cancelled it
                raise

    # -- requests

    async def request(
        self, message: Message | str, body: bytes = b"", /, *, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> ReceivedMessage:
        """Stores a message and returns the first reply to it, of a service or of a device (MQTT 5): whoever reads it
        answers with ``reply``, or publishes under its response topic, with its correlation data.

        Raises:
            TimedOut: no reply came in time; the request may be carried out all the same.
            PenstockError: as ``send``.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        asked = preparation.as_message(message, body, **fields)
        return await self._requests.request(
            asked, limit_s, lambda one, left_s: self.send(one, timeout_s=max(0.0, left_s))
        )

    async def reply(self, request: ReceivedMessage, body: bytes, /, *, timeout_s: float | None = None) -> Receipt:
        """Answers a request, of a service or of a device. Raises ``InvalidRequest`` for a message that wants no reply,
        and as ``send``."""
        return await self.send(reply_of(request, body), timeout_s=timeout_s)

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
            raise InvalidRequest("a transaction needs a producer group", hint="Producer(group=..., check=...)")
        given = messages_of(message, body, fields)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        return Transaction(partial(self._begin, given, limit_s), partial(self._transactions.end, limit_s))

    async def _begin(self, messages: Sequence[Message], limit_s: float) -> list[Half]:
        outgoing = self._preparation.runs(messages, self._clock.wall_ms())
        return await self._transactions.begin(outgoing, limit_s)
