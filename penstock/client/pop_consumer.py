"""A consumer that pops: the broker leases each message to it for a time, and it acknowledges each one separately.

Its group has no members and no assignment: every consumer reads every queue of every broker, so there is no rebalance,
and a slow message delays no other. Delivery is at least once: a message that is not acknowledged before its lease ends
is delivered again, to any consumer, with ``attempts`` one higher. Reasons: docs/decisions/0044.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType

import anyio

from penstock.client.addressing import check_servers
from penstock.client.arguments import OnlyAsync, Start, check_count, check_handler, check_seconds
from penstock.client.attempts import ATTEMPTS_MAX, check_nack
from penstock.client.credentials import Tls, credentials_of
from penstock.client.discovery import Discovery
from penstock.client.handling import Handling, Work
from penstock.client.holdings import LEAVE_S, REFRESH_S
from penstock.client.jobs import FLOW, STOP_S
from penstock.client.leasing import Popping, ranges_of
from penstock.client.positions import Batch
from penstock.client.pulling import bounds_of, offset_of
from penstock.client.repeating import Repeating
from penstock.client.retry import TIMEOUT_S, BackOff
from penstock.client.subscription import LOOK_S, Topics
from penstock.client.taker import INVISIBLE_S, SPAN_MAX, PopTerms, Taker, check_invisible
from penstock.client.task_scope import TaskScope
from penstock.client.unfinished import Flow
from penstock.client.wire_link import WireLinks, ask, call
from penstock.errors import InvalidRequest, NoRoute, PenstockError, QueueNotFound
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Link, Links
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, Popped
from penstock.protocol.requests.retries import SentBack
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, RealClock, Rng, new_rng

_log = logging.getLogger(__name__)


class PopConsumer(OnlyAsync):
    """Pops messages of topics for a group. Use it with ``async with``; iterate as with a ``Consumer``.

    Args:
        group: name of the group; all its consumers share every queue. It must have no members (``Consumer``).
        topics: what to read, as for ``Consumer``; the same for all consumers of the group.
        servers: name servers, ``"host:port,host:port"`` or a list.
        start: where to begin in queues from which the group has neither popped nor committed anything.
        tags: only messages with one of these tags, or with this one; the same for all consumers of the group.
        filter: only messages that this selector wants, in SQL-92's words over their properties; the same for all.
        invisible_s: seconds for which a message is leased before it is delivered again, at most 12 hours. The consumer
            extends the leases of messages that wait for the program or that a handler processes.
        attempts_max: number of attempts after which a message becomes a dead letter of the group.
        retry_delays_s: seconds that a returned message waits before its second attempt, its third, and so on; the
            broker's setting if left out.
        batch_max: maximum number of messages per batch.
        timeout_s: seconds after which entering the block or a call fails.
        user, password: of the cluster's users; or ``token``, a JSON Web Token. The password is not sent. Left out: what
            the environment says (``PENSTOCK_USER`` and others).
        tls: true, the path of the authority's certificate, or an ``ssl.SSLContext``; left out as above.
        links: connections other than TCP, for programs that embed the servers.

    Raises:
        InvalidRequest: an argument is illegal.
        InvalidFilter: ``filter`` cannot be read.
    """

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
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_servers(servers)
        check_seconds("timeout_s", timeout_s)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        terms = PopTerms(group, topics, start, tags, filter, invisible_s, attempts_max, retry_delays_s, batch_max)
        self._taker = Taker(terms, self._clock, self._rng)
        self.group = group
        self.topics = self._taker.subscription.topics
        self._repeating = Repeating(timeout_s, self._clock, self._rng, _log)
        self._servers = servers
        self._links = links
        self._credentials = credentials_of(user, password, token, tls)
        self._back_off = BackOff()
        self._wires, self._tasks = TaskScope(), TaskScope()
        self._brokers: dict[str, Link] = {}  # by name; the current link, for a broker may move
        self._ready: deque[tuple[Batch, anyio.Event]] = deque()
        self._changed = anyio.Event()
        self._failure: PenstockError | None = None
        self._handling: Handling | None = None
        self._discovery: Discovery | None = None

    async def __aenter__(self) -> PopConsumer:
        """Finds the queues and begins to pop. Raises ``Unavailable`` or ``TimedOut`` after ``timeout_s``."""
        await self._wires.open()
        await self._tasks.open()
        try:
            links = self._links or WireLinks(
                self._wires, clock=self._clock, rng=self._rng, credentials=self._credentials
            )
            self._discovery = Discovery(self._servers, links, clock=self._clock, fresh_s=REFRESH_S / 2)
            self._tasks.start_soon(self._discovery.keep_following)
            await self._repeating.run(self._find)
            self._tasks.start_soon(self._keep_finding)
            self._tasks.start_soon(self._keep_leases)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Ends the popping, gives back unacknowledged messages, closes the connections."""
        try:
            await self._tasks.close()
        finally:
            self._discovery = None
            try:
                with anyio.move_on_after(LEAVE_S, shield=True):
                    await self._leave()
            finally:
                await self._wires.close()

    # -- messages

    def __aiter__(self) -> PopConsumer:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        batch = await self.take()
        batch.hand_over()
        return batch.messages

    async def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch; an empty list after ``wait_s`` seconds. Raises ``PenstockError`` if retries cannot help."""
        check_seconds("wait_s", wait_s)
        with anyio.move_on_after(wait_s):
            return await anext(self)
        return []

    async def take(self, fits: Callable[[Batch], bool] | None = None) -> Batch:
        """The next batch that fits, for handlers."""
        self._check_open()
        while True:
            for at, (batch, taken) in enumerate(self._ready):
                if fits is None or fits(batch):
                    del self._ready[at]
                    taken.set()
                    await anyio.lowlevel.cancel_shielded_checkpoint()  # the next pop leaves before the program goes on
                    return batch
            if self._failure is not None:
                raise self._failure
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()

    def stir(self) -> None:
        """Has ``take`` look at the batches in store again."""
        self._changed.set()

    # -- acknowledgements

    async def ack(self, messages: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        """Acknowledges messages. Once this returns, that is durable and none of them is delivered again.

        Raises:
            QueueNotFound: the consumer does not read the queue of a message.
            PenstockError: a message may not be acknowledged; repeating the call is safe.
        """
        self._check_open()
        self._taker.finish(messages)
        await self._repeating.run(self._acknowledge)

    async def nack(self, message: ReceivedMessage, after_s: float | None = None, *, reason: str = "") -> SentBack:
        """Returns a message to the broker for a retry, durably; after its last attempt it becomes a dead letter. Args
        and result as for ``Consumer.nack``.

        Raises:
            Fenced: another consumer holds the message now, or it is acknowledged.
            PenstockError: the message is not returned; if ``unknown``, it may be delivered twice.
        """
        check_nack(message, after_s, reason)
        return await self._send_back(message, after_s, reason)

    async def extend(self, messages: ReceivedMessage | Sequence[ReceivedMessage], invisible_s: float) -> None:
        """Leases messages for ``invisible_s`` seconds from now; 0 returns them without counting an attempt. Raises
        ``PenstockError``."""
        check_invisible(invisible_s)
        for queue, offsets in self._taker.given(messages, "extend"):
            if not invisible_s:
                queue.in_hand.drop(offsets)
            await self._extend(queue, self._taker.extensions(queue, ranges_of(offsets), invisible_s))

    async def handle(
        self,
        work: Callable[[ReceivedMessage], Awaitable[object]],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        stop_s: float = STOP_S,
    ) -> None:
        """Processes messages with a handler until ``stop``, and acknowledges each one separately. Args and errors as
        for ``Consumer.handle``."""
        check_handler(work)

        async def work_one(messages: Sequence[ReceivedMessage]) -> None:
            await work(messages[0])

        await self._handle(work_one, concurrency, 1, Flow(messages_max, bytes_max, SPAN_MAX), stop_s)

    async def handle_batches(
        self,
        work: Callable[[Sequence[ReceivedMessage]], Awaitable[Iterable[ReceivedMessage] | None]],
        *,
        concurrency: int = 1,
        messages_max: int = FLOW.messages,
        bytes_max: int = FLOW.bytes,
        stop_s: float = STOP_S,
    ) -> None:
        """As ``handle``, with a handler like that of ``Consumer.handle_batches``."""
        check_handler(work)
        flow = Flow(messages_max, bytes_max, SPAN_MAX)
        await self._handle(work, concurrency, self._taker.batch_max, flow, stop_s)

    async def _handle(self, work: Work, concurrency: int, size: int, flow: Flow, stop_s: float) -> None:
        check_count("concurrency", concurrency)
        check_seconds("stop_s", stop_s)
        self._check_open()
        if self._handling is not None:
            raise InvalidRequest("this consumer already runs a handler")
        self._handling = Handling(self, self._send_back, self._acknowledge, flow, self._clock, self._rng)
        try:
            await self._handling.run(work, concurrency, size, stop_s)
        finally:
            self._handling = None
        await self._repeating.run(self._acknowledge)
        await self._give_all_back()

    def stop(self) -> None:
        """Ends ``handle``: it starts no further message, and returns when running calls are finished and
        acknowledged."""
        if self._handling is not None:
            self._handling.stop()

    # -- leases

    async def _acknowledge(self) -> None:
        """Sends acknowledgements, of all queues at once. Raises ``PenstockError``: they are sent again later."""
        failures: list[PenstockError] = []

        async def tell(queue: Popping, request: AckPopped) -> None:
            try:
                await call(self._brokers[queue.queue.broker], request)
            except BaseException as error:
                failure = self._taker.not_told(queue, request, error)
                if not isinstance(error, PenstockError):
                    raise
                if failure is not None:
                    failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for queue, request in self._taker.acknowledgements():
                tasks.start_soon(tell, queue, request)
        if failures:
            raise failures[0]

    async def _send_back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        self._check_open()
        queue, request = self._taker.popping_of(message.queue), self._taker.send_back(message, after_s, reason)
        answer: list[SentBack] = []

        async def send() -> None:
            answer.append(await ask(self._brokers[message.queue.broker], request, SentBack))

        await self._repeating.run(send)
        queue.in_hand.drop([message.offset])
        if answer[-1].due_ms:
            await self._pop_from(MessageQueue(message.queue.broker, self._taker.subscription.retry_topic, 0))
        return answer[-1]

    async def _extend(self, queue: Popping, requests: Iterable[ExtendPopped]) -> None:
        for request in requests:
            await call(self._brokers[queue.queue.broker], request)

    async def _keep_leases(self) -> None:
        """Extends the leases of messages that wait here for the program, and of a handler's; the rest is the program's
        to extend."""
        while True:
            await anyio.sleep(self._taker.invisible_s / 3)
            waiting = [batch.messages for batch, _taken in self._ready]
            for queue, requests in self._taker.renewals(waiting, in_hand=self._handling is not None):
                with contextlib.suppress(PenstockError):  # a message that is not extended is delivered again
                    await self._extend(queue, requests)

    async def _give_all_back(self) -> None:
        """Returns all leased messages, so that others get them at once."""
        ready, self._ready = self._ready, deque()
        for batch, taken in ready:
            batch.hand_over()
            taken.set()
        for queue, requests in self._taker.returned():
            with contextlib.suppress(PenstockError):
                await self._extend(queue, requests)

    async def _leave(self) -> None:
        """Returns messages whose replies did not arrive, too."""
        for link in self._brokers.values():
            with contextlib.suppress(PenstockError):
                await call(link, self._taker.leave())

    # -- queues

    def _check_open(self) -> None:
        if self._discovery is None:
            raise InvalidRequest("this consumer is not open", hint="use it inside `async with PopConsumer(...) as c:`")

    async def _keep_finding(self) -> None:
        while True:
            await anyio.sleep(LOOK_S if self._taker.subscription.waits else REFRESH_S)
            with contextlib.suppress(PenstockError):
                await self._find()

    async def _find(self) -> None:
        """Begins to pop queues that are new to us."""
        assert self._discovery is not None
        discovery, subscription = self._discovery, self._taker.subscription
        wanted = subscription.topics if subscription.pattern is None else subscription.chosen(await discovery.topics())
        found: list[tuple[str, BrokerRoute]] = []
        for topic in (*wanted, subscription.retry_topic):
            try:
                routes = await discovery.brokers(topic)
            except NoRoute as error:
                if topic != subscription.retry_topic:
                    subscription.missed(topic, error)
                continue
            if topic != subscription.retry_topic:
                subscription.found(topic, routes)
            found += [(topic, route) for route in routes]
        subscription.opened(self._clock.wall_ms())
        for topic, route in found:
            self._brokers[route.broker] = discovery.link(route.address)
            for number in range(route.queues):
                await self._pop_from(MessageQueue(route.broker, topic, number))

    async def _pop_from(self, queue: MessageQueue) -> None:
        popped = self._taker.queues
        if queue in popped:
            return
        link = self._brokers[queue.broker]
        bounds = (await bounds_of(link, [queue.name]))[0]
        begin = await offset_of(link, bounds, self._taker.subscription.start_of(queue.topic))
        if queue not in popped:
            popping = popped[queue] = Popping(queue, begun=begin)
            self._tasks.start_soon(self._keep_popping, popping)

    async def _keep_popping(self, queue: Popping) -> None:
        failures, taker = 0, self._taker
        while True:
            try:
                link = self._brokers[queue.queue.broker]
                batches = queue.advance(await ask(link, taker.pull(queue, 1), Popped), taker.batch_max)
                failures = 0
            except PenstockError as error:
                if not (error.retryable or isinstance(error, QueueNotFound)):
                    self._failure = self._failure or error
                    self._changed.set()
                    return
                failures += 1
                await anyio.sleep(self._back_off.wait_s(failures, self._rng))
                continue
            for batch in batches:
                taken = anyio.Event()
                self._ready.append((batch, taken))
                self._changed.set()
                await taken.wait()
