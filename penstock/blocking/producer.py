"""Sends messages from code without an event loop. What becomes of them is decided in penstock/client/sending.py.

It keeps the routes of the topics that it sent to and, for a while, which brokers failed. One thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import overload

from penstock.blocking.routes import Routes
from penstock.client import preparation, sending
from penstock.client.arguments import OnlyBlocking, check_seconds
from penstock.client.retry import TIMEOUT_S, BackOff, Telling
from penstock.client.sending import AVOID_S, ROUTE_FRESH_S, Outgoing, Receipt, settled
from penstock.errors import InvalidRequest, PenstockError, TimedOut, Unavailable
from penstock.protocol.addresses import SERVERS
from penstock.protocol.message import Message
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, RealClock, Rng, new_rng, pause
from topicmap.queues import TopicMap

_log = logging.getLogger(__name__)


class Producer(OnlyBlocking):
    """As ``penstock.Producer``, for ``with`` and without ``await``. Args and errors are the same."""

    def __init__(
        self,
        *,
        servers: str | Sequence[str] = SERVERS,
        timeout_s: float = TIMEOUT_S,
        topic_map: TopicMap | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self.timeout_s = timeout_s
        self._routes = Routes(servers, timeout_s)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._preparation = preparation.Preparation(self._rng.getrandbits(64), topic_map or TopicMap())
        self._back_off = BackOff()
        self._known: dict[str, tuple[float, tuple[BrokerRoute, ...]]] = {}
        self._avoid: dict[str, float] = {}
        self._turn = 0
        self._open = False

    def __enter__(self) -> Producer:
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._open = False
        self._routes.close()

    @overload
    def send(self, message: Message, /, *, timeout_s: float | None = None) -> Receipt: ...

    @overload
    def send(
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
        timeout_s: float | None = None,
    ) -> Receipt:
        """Stores one message and returns when its topic's level is reached. Raises as ``penstock.Producer.send``."""
        given = preparation.as_message(message, body, key, tag, properties, mqtt_topic, qos, retain)
        [one] = self._send_all([given], timeout_s)
        if one.queue is None:
            raise sending.final_error(one)
        return one.receipt(0)

    def send_many(self, messages: Sequence[Message], *, timeout_s: float | None = None) -> Sequence[Receipt]:
        """Stores messages and returns their receipts in order. Raises as ``penstock.Producer.send_many``."""
        return sending.receipts(self._send_all(messages, timeout_s))

    # -- attempts

    def _send_all(self, messages: Sequence[Message], timeout_s: float | None) -> list[Outgoing]:
        """Attempts until each message is stored, has an error that no repetition mends, or no time."""
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s)
        outgoing = self._preparation.runs(messages, self._clock.wall_ms())
        if not self._open:
            raise InvalidRequest("this producer is not open", hint="use it inside `with Producer(...) as p:`")
        began = self._clock.monotonic()
        deadline = began + (self.timeout_s if timeout_s is None else timeout_s)
        waiting, repetition, telling = outgoing, 0, Telling(_log, began)
        while waiting:
            self._try(waiting, deadline)
            waiting, repetition = sending.once_more(settled(waiting)), repetition + 1
            wait_s = self._back_off.wait_s(repetition, self._rng)
            goes_on = self._clock.monotonic() + wait_s
            if goes_on >= deadline:
                break
            if waiting:
                telling.note(sending.final_error(waiting[0]), goes_on, deadline)
                pause(wait_s)
        return settled(outgoing)

    def _try(self, waiting: list[Outgoing], deadline: float) -> None:
        """One attempt for all: each gets a place or an error."""
        by_broker: dict[BrokerRoute, list[Outgoing]] = {}
        now = self._clock.monotonic()
        avoid = [address for address, until in self._avoid.items() if now < until]
        self._turn += 1
        for one in waiting:
            try:
                broker = sending.choose(one.key, self._brokers(one.topic), self._turn, avoid)
            except PenstockError as error:
                one.fail(error)
            else:
                by_broker.setdefault(broker, []).append(one)
        for broker, mine in by_broker.items():
            self._append(broker, mine, deadline)

    def _append(self, broker: BrokerRoute, mine: list[Outgoing], deadline: float) -> None:
        batches = list(sending.batches(mine))
        results: Sequence[Result]
        try:
            left = max(0.0, deadline - self._clock.monotonic())
            results = self._routes.link(broker.address).call_many([sending.append_of(one) for one in batches], left)
        except PenstockError as error:
            results = [error] * len(batches)
            if isinstance(error, Unavailable | TimedOut):
                self._avoid[broker.address] = self._clock.monotonic() + AVOID_S
                for one in mine:
                    self._known.pop(one.topic, None)
        for batch, result in zip(batches, results, strict=True):
            sending.settle(batch, broker.broker, result)

    def _brokers(self, topic: str) -> tuple[BrokerRoute, ...]:
        now = self._clock.monotonic()
        until, brokers = self._known.get(topic, (0.0, ()))
        if now >= until:
            brokers = self._routes.find_or_create(topic)
            self._known[topic] = (now + ROUTE_FRESH_S, brokers)
        return brokers
