"""Sends messages from code without an event loop. penstock/client/sending.py decides.

It keeps the routes of the topics that it sent to and, for a while, which brokers failed. One thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, Unpack, overload

from penstock.blocking.checking import Checks
from penstock.blocking.requesting import Requests
from penstock.blocking.routes import Routes
from penstock.blocking.transaction import Transaction, Transactions
from penstock.client import preparation, sending, ways
from penstock.client.arguments import OnlyBlocking, check_flag, check_wait, topic_map_of
from penstock.client.credentials import Tls, credentials_of
from penstock.client.delays import Delay, Due, due_of
from penstock.client.devices import DeviceFields, device_message
from penstock.client.faults import Faults, attempt_s
from penstock.client.halves import Beginning, BlockingListener, Half, check_group
from penstock.client.outcomes import Outcome, outcome_of, outcomes_of
from penstock.client.preparation import Fields
from penstock.client.replies import reply_of
from penstock.client.retry import TIMEOUT_S, BackOff, Telling, worth_another_try
from penstock.client.sending import ROUTE_FRESH_S, Outgoing, Receipt, settled
from penstock.client.ways import DelayedReceipt, Later, Selector, Way
from penstock.errors import (
    InvalidRequest,
    NoRoute,
    NotAllowed,
    PenstockError,
    SendManyError,
    TimedOut,
    TimerNotFound,
    Unavailable,
)
from penstock.protocol.addresses import SERVERS
from penstock.protocol.compression import Compression
from penstock.protocol.message import Message
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.request import Done, Reply, Request, Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.servers import Ping
from penstock.world import Clock, RealClock, Rng, new_rng, pause
from topicmap.queues import TopicMap

_log = logging.getLogger(__name__)
ONEWAY_S: Final = 2.0
_R = TypeVar("_R", bound=Reply)


class Producer(OnlyBlocking):
    """A producer as ``penstock.Producer``, for ``with`` and without ``await``. Args and errors are the same, except
    that ``check`` is a plain function, called inside ``answer_checks``."""

    def __init__(
        self,
        *,
        servers: str | Sequence[str] = SERVERS,
        timeout_s: float = TIMEOUT_S,
        group: str = "",
        check: BlockingListener | None = None,
        idempotent: bool = True,
        failover: bool = True,
        compression: Compression = "",
        topic_map: TopicMap | None = None,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        check_group(group, check)
        check_flag("idempotent", idempotent)
        check_flag("failover", failover)
        self.timeout_s = timeout_s
        self.group = group
        self._transactions = Transactions(group, self._ask_broker)
        credentials = credentials_of(user, password, token, tls)
        self._routes = Routes(servers, timeout_s, credentials)
        self._clock = clock or RealClock()
        is_open = self._transactions.is_open
        self._checks = None if check is None else Checks(group, check, is_open, self._routes, self._clock)
        self._rng = rng or new_rng()
        random_bits, topics = self._rng.getrandbits(64), topic_map_of(topic_map)
        self._preparation = preparation.Preparation(
            random_bits, topics, is_idempotent=idempotent, compression=compression
        )
        self._failover = failover
        self._requests = Requests(servers, timeout_s, self._clock, self._rng, credentials)
        self._back_off = BackOff()
        self._known: dict[str, tuple[float, tuple[BrokerRoute, ...]]] = {}
        self._faults = Faults()
        self._turn = 0
        self._unheard: set[str] = set()  # addresses at which answers were not awaited
        self._open = False

    def __enter__(self) -> Producer:
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections, once the brokers have taken messages that were sent without an acknowledgement."""
        for address in self._unheard:
            with suppress(PenstockError):
                self._routes.link(address).call(Ping(), ONEWAY_S)  # carried out in order: behind what was sent
        self._unheard.clear()
        self._open = False
        self._requests.close()
        self._routes.close()

    @overload
    def send(
        self, message: Message, /, *, queue: Selector | None = None, timeout_s: float | None = None
    ) -> Receipt: ...

    @overload
    def send(
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
    def send(self, message: Message, /, *, delay: Delay, timeout_s: float | None = None) -> DelayedReceipt: ...

    @overload
    def send(self, message: Message, /, *, at: datetime | int, timeout_s: float | None = None) -> DelayedReceipt: ...

    @overload
    def send(
        self, topic: str, body: bytes, /, *, delay: Delay, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> DelayedReceipt: ...

    @overload
    def send(
        self,
        topic: str,
        body: bytes,
        /,
        *,
        at: datetime | int,
        timeout_s: float | None = None,
        **fields: Unpack[Fields],
    ) -> DelayedReceipt: ...

    def send(
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
        """Stores one message and returns when it has reached its topic's level. As ``penstock.Producer.send``."""
        given = [preparation.as_message(message, body, key, tag, properties, mqtt_topic, qos, retain, shard)]
        way = ways.way_of(queue, due := due_of(delay, at))
        [one] = self._send_all(given, timeout_s, way, queue, due)
        if one.queue is None:
            raise sending.final_error(one)
        return ways.delayed_receipt(one) if isinstance(way, Later) else one.receipt(0)

    @overload
    def send_many(
        self, messages: Sequence[Message], *, queue: Selector | None = None, timeout_s: float | None = None
    ) -> Sequence[Receipt]: ...

    @overload
    def send_many(
        self, messages: Sequence[Message], *, delay: Delay, timeout_s: float | None = None
    ) -> Sequence[DelayedReceipt]: ...

    @overload
    def send_many(
        self, messages: Sequence[Message], *, at: datetime | int, timeout_s: float | None = None
    ) -> Sequence[DelayedReceipt]: ...

    def send_many(
        self,
        messages: Sequence[Message],
        *,
        queue: Selector | None = None,
        delay: Delay | None = None,
        at: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[Receipt] | Sequence[DelayedReceipt]:
        """Stores messages and returns their receipts in order. As ``penstock.Producer.send_many``."""
        way = ways.way_of(queue, due := due_of(delay, at))
        return ways.receipts(self._send_all(messages, timeout_s, way, queue, due), way)

    def send_each(
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
            return [outcome_of(one) for one in self.send_many(messages, **how)]
        except SendManyError as error:
            return outcomes_of(error)

    @overload
    def send_oneway(self, message: Message, /) -> None: ...

    @overload
    def send_oneway(self, topic: str, body: bytes, /, **fields: Unpack[Fields]) -> None: ...

    def send_oneway(self, message: Message | str, body: bytes = b"", /, **fields: Unpack[Fields]) -> None:
        """Sends one message without waiting for an acknowledgement. As ``penstock.Producer.send_oneway``."""
        given = preparation.as_message(message, body, **fields)
        [one] = self._preparation.runs((given,), self._clock.wall_ms())
        self._check_open()
        self._turn += 1
        avoid = self._faults.avoided(self._clock.monotonic())
        one.broker = sending.choose(one.key, self._brokers(one.topic), self._turn, avoid)
        self._preparation.number(one)
        self._unheard.add(one.broker.address)
        self._routes.link(one.broker.address).send_only(sending.append_of([one]))

    @overload
    def send_to_device(
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
    def send_to_device(
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

    def send_to_device(
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
        """Stores a message for one device. As ``penstock.Producer.send_to_device``."""
        message = device_message(client_id, body, **fields)
        if delay is not None:
            return self.send(message, delay=delay, timeout_s=timeout_s)
        if at is not None:
            return self.send(message, at=at, timeout_s=timeout_s)
        return self.send(message, timeout_s=timeout_s)

    def cancel(self, receipt: DelayedReceipt, *, timeout_s: float | None = None) -> None:
        """Cancels a delayed message. As ``penstock.Producer.cancel``."""
        cancel = ways.cancel_of(receipt)
        try:
            self._ask_broker(receipt.broker, "", cancel, Done, timeout_s)
        except TimerNotFound as error:
            if not error.unknown:  # else an attempt before has cancelled it
                raise

    # -- requests

    def request(
        self, message: Message | str, body: bytes = b"", /, *, timeout_s: float | None = None, **fields: Unpack[Fields]
    ) -> ReceivedMessage:
        """Stores a message and returns the first reply to it. As ``penstock.Producer.request``."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_wait("timeout_s", limit_s)
        asked = preparation.as_message(message, body, **fields)
        return self._requests.request(asked, limit_s, lambda one, left_s: self.send(one, timeout_s=left_s))

    def reply(self, request: ReceivedMessage, body: bytes, /, *, timeout_s: float | None = None) -> Receipt:
        """Answers a request. As ``penstock.Producer.reply``."""
        return self.send(reply_of(request, body), timeout_s=timeout_s)

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
        """A block that stores messages when it begins and delivers them when it ends without an error. As
        ``penstock.Producer.transaction``."""
        if not self.group:
            raise InvalidRequest("a transaction needs a producer group", hint="Producer(group=..., check=...)")
        given = preparation.messages_of(message, body, fields)
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_wait("timeout_s", limit_s)
        return Transaction(partial(self._begin, given, limit_s), partial(self._transactions.end, limit_s))

    def answer_checks(self, wait_s: float = 0.0) -> int:
        """Calls the listener for transactions of the group that have no outcome, waits up to ``wait_s`` seconds for the
        first, and returns their number. At least one process of the group must call this regularly.

        Raises:
            InvalidRequest: the producer has no listener.
            NoRoute, Unavailable: no broker answers.
        """
        self._check_open()
        check_wait("wait_s", wait_s)
        if self._checks is None:
            raise InvalidRequest("this producer has no listener", hint="Producer(group=..., check=...)")
        return self._checks.answer(wait_s)

    def _begin(self, messages: Sequence[Message], limit_s: float) -> list[Half]:
        return self._transactions.begin(self._send_all(messages, limit_s, Beginning(self.group)), limit_s)

    # -- attempts

    def _send_all(
        self,
        messages: Sequence[Message],
        timeout_s: float | None,
        way: Way,
        queue: Selector | None = None,
        due: Due | None = None,
    ) -> list[Outgoing]:
        """Attempts until each message is stored, has an error that no repetition mends, or no time."""
        if timeout_s is not None:
            check_wait("timeout_s", timeout_s)
        if way.is_whole:
            outgoing = self._preparation.runs(messages, self._clock.wall_ms())
        else:
            outgoing = ways.runs_of_each(self._preparation, messages, self._clock.wall_ms())
        self._check_open()
        ways.prepare(outgoing, messages, way, queue, due)
        began = self._clock.monotonic()
        deadline = began + (self.timeout_s if timeout_s is None else timeout_s)
        waiting, repetition, telling = [one for one in settled(outgoing) if one.error is None], 0, Telling(_log, began)
        while waiting:
            for window in sending.windows(waiting):
                self._try(window, deadline, way)
            waiting, repetition = way.again(settled(waiting)), repetition + 1
            wait_s = self._back_off.wait_s(repetition, self._rng)
            goes_on = self._clock.monotonic() + wait_s
            if goes_on >= deadline:
                break
            if waiting:
                telling.note(sending.final_error(waiting[0]), goes_on, deadline)
                pause(wait_s)
        return settled(outgoing)

    def _try(self, waiting: list[Outgoing], deadline: float, way: Way) -> None:
        """One attempt for all: each gets a place or an error. Those that may go elsewhere wait for a part of the time
        only."""
        by_broker: dict[tuple[BrokerRoute, bool], list[Outgoing]] = {}
        now = self._clock.monotonic()
        avoid = self._faults.avoided(now)
        self._turn += 1
        for one in waiting:
            try:
                brokers = self._brokers(one.topic)
                may_leave = self._failover and way.may_leave and not one.key and one.chosen is None
                if one.chosen is None:
                    broker = sending.broker_for(one, brokers, self._turn, avoid, may_leave)
                else:
                    broker = ways.broker_of_chosen(one, brokers)
            except PenstockError as error:
                if isinstance(error, NoRoute):
                    self._known.pop(one.topic, None)  # it may be written to again by now
                one.fail(error)
            else:
                one.broker = broker
                self._preparation.number(one)
                by_broker.setdefault((broker, may_leave and len(brokers) > 1), []).append(one)
        for (broker, may_leave), mine in by_broker.items():
            left_s = max(0.0, deadline - self._clock.monotonic())
            self._store(broker, mine, attempt_s(left_s) if may_leave else left_s, way)

    def _store(self, broker: BrokerRoute, mine: list[Outgoing], limit_s: float, way: Way) -> None:
        batches, began = list(sending.batches(mine, way.fits)), self._clock.monotonic()
        results: Sequence[Result]
        try:
            results = self._routes.link(broker.address).call_many([way.request(one) for one in batches], limit_s)
        except PenstockError as error:
            results = [error] * len(batches)
            if isinstance(error, Unavailable | TimedOut):
                self._faults.failed(broker.address, self._clock.monotonic())
                for one in mine:
                    self._known.pop(one.topic, None)
        now = self._clock.monotonic()
        self._faults.answered(broker.address, now - began, now)
        for batch, result in zip(batches, results, strict=True):
            way.settle(batch, broker.broker, result)
            for one in settled(batch):
                if isinstance(one.error, NotAllowed):  # name servers know by now who may be written to
                    self._known.pop(one.topic, None)

    def _ask_broker(self, name: str, address: str, request: Request, kind: type[_R], timeout_s: float | None) -> _R:
        """As ``penstock.Producer._ask_broker``."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        check_wait("timeout_s", limit_s)
        self._check_open()
        deadline, attempt, unknown = self._clock.monotonic() + limit_s, 0, False
        while True:
            try:
                address = address or ways.address_of(name, self._routes.brokers())
                return self._routes.link(address).ask(request, kind, max(0.0, deadline - self._clock.monotonic()))
            except PenstockError as error:
                unknown = unknown or error.unknown
                wait_s = self._back_off.wait_s(attempt := attempt + 1, self._rng)
                if not worth_another_try(error, self._clock.monotonic() + wait_s, deadline):
                    raise sending.known_or_not(error, unknown) from None
            address = ""
            pause(wait_s)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidRequest("this producer is not open", hint="use it inside `with Producer(...) as p:`")

    def _brokers(self, topic: str) -> tuple[BrokerRoute, ...]:
        now = self._clock.monotonic()
        until, brokers = self._known.get(topic, (0.0, ()))
        if now >= until:
            brokers = self._routes.find_or_create(topic)
            self._known[topic] = (now + ROUTE_FRESH_S, brokers)
        return brokers
