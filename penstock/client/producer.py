"""Sends messages, on asyncio and on trio: the interface for programs. penstock/client/outbox.py does the sending.

Concurrent sends are batched: all messages handed over for one broker since the last round leave as one request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Unpack, overload

from penstock.client import preparation, sending, ways
from penstock.client.addressing import check_servers
from penstock.client.arguments import OnlyAsync, check_count, check_flag, check_seconds, topic_map_of
from penstock.client.checking import Checker
from penstock.client.credentials import Tls, credentials_of
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
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import TopicMap

PENDING_MAX: Final = 10_000

_log = logging.getLogger(__name__)


class Producer(OnlyAsync):
    """Sends messages to a cluster. Use it with ``async with``; one producer serves any number of tasks. At the end of
    the block it waits for what other tasks are still sending; not if the block ends with an error.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: seconds after which a send fails, over all its attempts.
        pending_max: maximum number of messages under way; further sends wait.
        group: name of the producers that decide each other's transactions; needed for ``transaction``.
        check: a listener, called for transactions of the group that have no outcome: an ``async def`` that takes a
            ``HalfMessage`` and returns ``"commit"``, ``"rollback"`` or ``"unknown"``. If it raises or takes longer than
            ``check_s``, it is called again later.
        check_s: maximum seconds of one call of the listener.
        idempotent: whether a broker stores a retried message once and returns its first receipt again.
        failover: whether a message without a key may go to another broker if it is unknown whether the first one stored
            it. If so, it may be stored twice; if not, the send fails as ``unknown`` if that broker does not return.
        compression: ``"zstd"``, ``"lz4"`` or ``"zlib"``: compresses bodies of more than 4 KiB if that makes them
            smaller, except for messages that have an MQTT name or are retained.
        topic_map: chooses the topic of messages that have an ``mqtt_topic`` and no topic; must equal the gateways' map.
        user, password: of the cluster's users; or ``token``, a JSON Web Token. The password is not sent. Left out: what
            the environment says (``PENSTOCK_USER`` and others).
        tls: true, the path of the authority's certificate, or an ``ssl.SSLContext``; left out as above.
        links: connections other than TCP, for programs that embed the servers.

    Raises:
        InvalidRequest: an argument is illegal.
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
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        check_seconds("check_s", check_s)
        check_servers(servers)
        check_count("pending_max", pending_max)
        check_group(group, check)
        check_flag("idempotent", idempotent)
        check_flag("failover", failover)
        self.timeout_s = timeout_s
        self.group = group
        self._check = (check, check_s)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        random_bits, topics = self._rng.getrandbits(64), topic_map_of(topic_map)
        self._preparation = preparation.Preparation(
            random_bits, topics, is_idempotent=idempotent, compression=compression
        )
        number = self._preparation.number
        credentials = credentials_of(user, password, token, tls)
        self._outbox = Outbox(
            servers, timeout_s, pending_max, links, credentials, self._clock, self._rng, number, failover
        )
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
        """Stores one message and returns when it has reached its topic's level.

        Args:
            shard: chooses the queue in place of the key: messages of one shard keep their order, and ``find`` uses the
                key. It is the property ``__SHARDINGKEY``.
            queue: the queue to use, or a function that takes all queues of the topic and the message and returns one;
                it is called once. If left out, the key decides.
            delay: time until delivery, at most 40 days: seconds, a ``timedelta``, or text like RocketMQ's levels:
                ``"30s"``, ``"10m"``, ``"2h"``.
            at: time of delivery: a ``datetime`` with a time zone, or milliseconds since 1970.
            timeout_s: seconds for all attempts; the producer's if left out.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic, InvalidRequest: the message was not sent.
            PenstockError: the message was not stored; if the error is ``unknown``, it may be stored.
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
        """Stores messages and returns their receipts in order; one may fail without the others. Consecutive messages
        that differ only in their bodies, all of one size, cost the least; without a key they go to one queue together.
        Args as for ``send``.

        Raises:
            SendManyError: some messages are illegal or were not stored; ``failures`` says which and why.
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
        """As ``send_many``, but returns an outcome for each message and raises no ``SendManyError``."""
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
        """Sends one message in the background and returns at once. The producer calls ``on_done`` in the event loop
        with the outcome, whether stored or failed. The end of the block waits for it. Other args as for ``send``.

        Raises:
            Busy: ``pending_max`` messages are under way.
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
        """Sends one message without waiting for an acknowledgement: it is not retried and may be lost. The end of the
        block waits briefly for messages on their way.

        Raises:
            TooLarge, InvalidMessage, InvalidTopic, NoRoute, Unavailable: the message was not sent.
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
        """Stores a message for one device, which receives it now, or when it reconnects to its session, if it has
        subscribed to ``$p2p/CLIENT_ID``. ``penstock.device_message`` makes the same message for ``send_many`` and
        transactions. Args and errors as for ``send``; ``InvalidRequest`` if the client id cannot be part of a name."""
        message = device_message(client_id, body, **fields)
        if delay is not None:
            return await self.send(message, delay=delay, timeout_s=timeout_s)
        if at is not None:
            return await self.send(message, at=at, timeout_s=timeout_s)
        return await self.send(message, timeout_s=timeout_s)

    async def cancel(self, receipt: DelayedReceipt, *, timeout_s: float | None = None) -> None:
        """Cancels a delayed message.

        Args:
            receipt: the receipt of ``send`` with ``delay`` or ``at``.
            timeout_s: seconds for all attempts; the producer's if left out.

        Raises:
            TimerFired: the message was already delivered.
            TimerNotFound: there is no such message; it may have been cancelled already.
            PenstockError: the broker did not answer; if ``unknown``, the message may be cancelled.
        """
        cancel = ways.cancel_of(receipt)
        try:
            await self._outbox.ask_broker(receipt.broker, "", cancel, Done, timeout_s)
        except TimerNotFound as error:
            if not error.unknown:  # else an attempt before has cancelled it
                raise

    # -- requests

    async def request(
        self, message: Message | str, body: bytes = b"", /, *, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> ReceivedMessage:
        """Stores a message and returns the first reply of a service or a device (MQTT 5). The receiver answers with
        ``reply``, or publishes under the message's response topic with its correlation data.

        Args:
            timeout_s: seconds until the reply must arrive; the producer's if left out.

        Raises:
            TimedOut: no reply arrived in time; the request may still be processed.
            PenstockError: as for ``send``.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", limit_s)
        asked = preparation.as_message(message, body, **fields)
        return await self._requests.request(
            asked, limit_s, lambda one, left_s: self.send(one, timeout_s=max(0.0, left_s))
        )

    async def reply(self, request: ReceivedMessage, body: bytes, /, *, timeout_s: float | None = None) -> Receipt:
        """Answers a request of a service or a device. Raises ``InvalidRequest`` for a message without a response topic,
        and the errors of ``send``."""
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
        """A block that stores messages when it begins and delivers them when it ends without an error::

            async with producer.transaction("payments", body, key="order-7") as tx:
                await database.execute(...)

        An error rolls them back. Either all messages are delivered, each once, or none.

        Args:
            timeout_s: seconds for beginning, and again for ending the block; the producer's if left out.

        Raises:
            InvalidRequest, TooLarge, InvalidMessage, InvalidTopic: nothing was stored.
            PenstockError: when the block begins: do not do the work; no message is delivered, unless the error is
                ``unknown`` and a listener commits it. When it ends: the commit was refused; if ``unknown``, its result
                is not certain, and a listener decides.
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
