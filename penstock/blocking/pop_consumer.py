"""A consumer that pops, without an event loop and without threads. As penstock/client/pop_consumer.py.

Leases are extended inside ``poll``, iteration, ``ack``, ``nack`` and ``extend``, and in ``handle`` between two
messages: those of batches that wait here for the program, and in ``handle`` of those that its handler has. A batch
whose lease may have ended meanwhile is not handed out: it is delivered again, here or elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final

from penstock.blocking.exchange import Exchange
from penstock.blocking.handling import Calls, Handling, Work
from penstock.blocking.link import BlockingLink
from penstock.blocking.pulls import WAIT_S_MAX, Pulls, bounds_of, offset_of
from penstock.blocking.repeating import Repeating
from penstock.blocking.routes import Routes
from penstock.client.arguments import OnlyBlocking, Start, check_count, check_plain_handler, check_wait
from penstock.client.attempts import ATTEMPTS_MAX, check_nack
from penstock.client.credentials import Tls, credentials_of
from penstock.client.holdings import LEAVE_S, REFRESH_S
from penstock.client.jobs import FLOW, STOP_S
from penstock.client.leasing import Popping, ranges_of
from penstock.client.retry import TIMEOUT_S
from penstock.client.subscription import LOOK_S, Topics
from penstock.client.taker import INVISIBLE_S, POP_WAIT_S, SPAN_MAX, PopTerms, Taker, check_invisible
from penstock.client.unfinished import Flow
from penstock.errors import InvalidRequest, NoRoute, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import AckPopped, ExtendPopped
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.retries import SentBack
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, RealClock, Rng, new_rng

_log = logging.getLogger(__name__)

WAIT_PART: Final = 0.25
"""A pop waits for this part of a lease at most: the lease may have begun as soon as it was sent."""
RENEW_PART: Final = 0.125
"""After this part of a lease it is extended."""


class PopConsumer(OnlyBlocking):
    """A consumer as ``penstock.PopConsumer``, for ``with`` and ``for``. Args and errors are the same. One thread at a
    time."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        servers: str | Sequence[str] = SERVERS,
        start: Start = "latest",
        tags: str | Iterable[str] = (),
        filter: str = "",
        invisible_s: float = INVISIBLE_S,
        attempts_max: int = ATTEMPTS_MAX,
        retry_delays_s: Iterable[float] | None = None,
        batch_max: int = 500,
        timeout_s: float = TIMEOUT_S,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: Tls = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        terms = PopTerms(group, topics, start, tags, filter, invisible_s, attempts_max, retry_delays_s, batch_max)
        check_invisible(invisible_s)
        wait_s = min(POP_WAIT_S, invisible_s * WAIT_PART)
        self._taker = Taker(terms, self._clock, self._rng, wait_s=wait_s)
        self.group = group
        self.topics = self._taker.subscription.topics
        self._repeating = Repeating(timeout_s, self._clock, self._rng, _log)
        credentials = credentials_of(user, password, token, tls)
        self._routes = Routes(servers, timeout_s, credentials)
        self._exchange = Exchange()
        self._pulls = Pulls(self._exchange, self._taker, self._clock, self._rng)
        self._brokers: dict[str, BlockingLink] = {}  # by name; the current link, for a broker may move
        self._handling: Handling | None = None
        self._look_again = 0.0
        self._extend_at = 0.0
        self._open = False

    def __enter__(self) -> PopConsumer:
        """Finds the queues. Raises ``Unavailable`` or ``TimedOut`` after ``timeout_s``."""
        try:
            self._repeating.run(self._find)
        except BaseException:
            self.close()
            raise
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Returns unacknowledged messages, closes the connections."""
        self._open = False
        for link in self._brokers.values():
            with contextlib.suppress(PenstockError):
                link.call(self._taker.leave(), LEAVE_S)
        self._brokers.clear()
        self._routes.close()

    # -- messages

    def __iter__(self) -> Iterator[list[ReceivedMessage]]:
        """Batches, each of one queue, without end."""
        while True:
            batch = self.poll(WAIT_S_MAX)
            if batch:
                yield batch

    def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch; an empty list after ``wait_s`` seconds. Raises ``PenstockError`` if retries cannot help."""
        self._check_open()
        check_wait("wait_s", wait_s)
        batch = self._pulls.take(wait_s, self._tend)
        if batch is None:
            return []
        batch.hand_over()
        return batch.messages

    # -- acknowledgements

    def ack(self, messages: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        """Acknowledges messages. Args and errors as for ``penstock.PopConsumer.ack``."""
        self._check_open()
        self._taker.finish(messages)
        self._repeating.run(self._acknowledge)
        self._look()

    def nack(self, message: ReceivedMessage, after_s: float | None = None, *, reason: str = "") -> SentBack:
        """Returns a message to the broker for a retry. Args, result and errors as for ``penstock.PopConsumer.nack``."""
        self._check_open()
        check_nack(message, after_s, reason)
        answer = self._send_back(message, after_s, reason)
        self._look()
        return answer

    def extend(self, messages: ReceivedMessage | Sequence[ReceivedMessage], invisible_s: float) -> None:
        """Leases messages for ``invisible_s`` seconds from now; 0 returns them without counting an attempt. Raises
        ``PenstockError``."""
        self._check_open()
        check_invisible(invisible_s)
        for popping, offsets in self._taker.given(messages, "extend"):
            if not invisible_s:
                popping.in_hand.drop(offsets)
            for request in self._taker.extensions(popping, ranges_of(offsets), invisible_s):
                self._brokers[popping.queue.broker].call(request)
        self._look()

    def handle(
        self,
        work: Callable[[ReceivedMessage], object],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        stop_s: float = STOP_S,
    ) -> None:
        """Processes messages with a handler until ``stop``, and acknowledges each one separately. Args and errors as
        for ``penstock.blocking.Consumer.handle``. With a ``concurrency`` of 1 choose an ``invisible_s`` that is longer
        than the handler takes for a message: leases are extended between two messages."""
        check_plain_handler(work)

        def work_one(messages: Sequence[ReceivedMessage]) -> None:
            work(messages[0])

        self._handle(work_one, concurrency, 1, Flow(messages_max, bytes_max, SPAN_MAX), stop_s)

    def handle_batches(
        self,
        work: Callable[[Sequence[ReceivedMessage]], Iterable[ReceivedMessage] | None],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        stop_s: float = STOP_S,
    ) -> None:
        """As ``handle``, with a handler like that of ``penstock.Consumer.handle_batches``."""
        check_plain_handler(work)
        self._handle(work, concurrency, self._taker.batch_max, Flow(messages_max, bytes_max, SPAN_MAX), stop_s)

    def _handle(self, work: Work, concurrency: int, size: int, flow: Flow, stop_s: float) -> None:
        check_count("concurrency", concurrency)
        check_wait("stop_s", stop_s)
        self._check_open()
        if self._handling is not None:
            raise InvalidRequest("this consumer already runs a handler")
        calls = Calls(self._send_back, self._acknowledge, self._tend)
        self._handling = Handling(self._pulls, calls, flow, self._clock, self._rng)
        try:
            self._handling.run(work, concurrency, size, stop_s)
        except BaseException:
            with contextlib.suppress(PenstockError):
                self._acknowledge()
            raise
        finally:
            self._handling = None
        self._repeating.run(self._acknowledge)
        self._give_all_back()

    def stop(self) -> None:
        """Ends ``handle``: it starts no further message, and returns when running calls are finished and
        acknowledged."""
        handling = self._handling
        if handling is not None:
            handling.stop()

    def _acknowledge(self) -> None:
        """Sends acknowledgements, those of one broker with one write. Raises ``PenstockError``: they are sent again
        later."""
        failures: list[PenstockError | None] = []
        by_broker: dict[str, list[tuple[Popping, AckPopped]]] = {}
        for popping, request in self._taker.acknowledgements():
            by_broker.setdefault(popping.queue.broker, []).append((popping, request))
        for broker, told in by_broker.items():
            results: Sequence[Result]
            try:
                results = self._brokers[broker].call_many([request for _popping, request in told])
            except PenstockError as error:
                results = [error] * len(told)
            for (popping, request), result in zip(told, results, strict=True):
                if isinstance(result, PenstockError):
                    failures.append(self._taker.not_told(popping, request, result))
        for failure in failures:
            if failure is not None:
                raise failure

    def _send_back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        popping, request = self._taker.popping_of(message.queue), self._taker.send_back(message, after_s, reason)
        broker, answer = message.queue.broker, list[SentBack]()
        self._repeating.run(lambda: answer.append(self._brokers[broker].ask(request, SentBack)))
        popping.in_hand.drop([message.offset])
        if answer[-1].due_ms:
            self._pop_from(MessageQueue(broker, self._taker.subscription.retry_topic, 0))
        return answer[-1]

    # -- leases

    def _look(self) -> None:
        """Takes in replies that came while the program was at work, and extends leases."""
        self._exchange.wait(0.0)
        self._tend()

    def _tend(self) -> None:
        """Extends leases, looks for new queues; a failure is tried again later."""
        now = self._clock.monotonic()
        if now >= self._look_again:
            try:
                self._find()
            except PenstockError:
                self._look_again = now + WAIT_S_MAX
        waiting = self._pulls.waiting
        for batch in waiting:
            popping = batch.position
            assert isinstance(popping, Popping)
            if popping.leased_until <= now:  # another may have it by now; if not, it is returned without an attempt
                popping.rewind()
                offsets = [one.offset for one in batch.messages]
                self._extend([(popping, self._taker.extensions(popping, ranges_of(offsets), 0.0))])
        if now >= self._extend_at:
            self._extend_at = now + self._taker.invisible_s * RENEW_PART
            kept = [batch.messages for batch in waiting if not batch.void]
            self._extend(self._taker.renewals(kept, in_hand=self._handling is not None))

    def _extend(self, asked: Iterable[tuple[Popping, Sequence[ExtendPopped]]]) -> None:
        """A message whose lease is not extended is delivered again: nothing waits for the answers."""
        for popping, requests in asked:
            link = self._brokers[popping.queue.broker]
            self._exchange.submit(link, [(request, lambda result: None) for request in requests])

    def _give_all_back(self) -> None:
        """Returns all leased messages, so that others get them at once."""
        for batch in self._pulls.waiting:
            batch.hand_over()
            batch.position.rewind()
        self._extend(self._taker.returned())

    # -- queues

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidRequest("this consumer is not open", hint="use it inside `with PopConsumer(...) as c:`")

    def _find(self) -> None:
        """Begins to pop queues that are new to us."""
        subscription = self._taker.subscription
        wanted = subscription.topics if subscription.pattern is None else subscription.chosen(self._routes.topics())
        found: list[tuple[str, BrokerRoute]] = []
        for topic in wanted:
            try:
                routes = self._routes.topic(topic)
            except NoRoute as error:
                subscription.missed(topic, error)
                continue
            subscription.found(topic, routes)
            found += [(topic, route) for route in routes]
        with contextlib.suppress(NoRoute):
            retries = subscription.retry_topic
            found += [(retries, route) for route in self._routes.topic(retries)]
        subscription.opened(self._clock.wall_ms())
        for topic, route in found:
            self._reach(route)
            for number in range(route.queues):
                self._pop_from(MessageQueue(route.broker, topic, number))
        self._look_again = self._clock.monotonic() + (LOOK_S if subscription.waits else REFRESH_S)

    def _reach(self, route: BrokerRoute) -> None:
        """A broker may have another address than it had."""
        link = self._routes.link(route.address)
        if self._brokers.get(route.broker) is link:
            return
        self._brokers[route.broker] = link
        for queue, popping in self._taker.queues.items():
            if queue.broker == route.broker:
                self._pulls.add(popping, link)

    def _pop_from(self, queue: MessageQueue) -> None:
        if queue in self._taker.queues:
            return
        link = self._brokers[queue.broker]
        bounds = bounds_of(link, [queue.name])[0]
        begin = offset_of(link, bounds, self._taker.subscription.start_of(queue.topic))
        popping = self._taker.queues[queue] = Popping(queue, begun=begin)
        self._pulls.add(popping, link)
