"""A consumer that pops: the broker leases each message to it for a time, and it acknowledges each one separately.

Its group has no members and no assignment: every consumer reads every queue of every broker, so there is no rebalance,
and a slow message delays no other. Delivery is at least once: a message that is not acknowledged before its lease ends
is delivered again, to any consumer, with ``attempts`` one higher. Reasons: docs/decisions/0044.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final

import anyio

from penstock.client.arguments import OnlyAsync, Start, check_count, check_group_name, check_handler, check_seconds
from penstock.client.attempts import ATTEMPTS_MAX, attempts_of, check_nack, check_received
from penstock.client.discovery import Discovery
from penstock.client.handling import Handling, Work
from penstock.client.holdings import LEAVE_S, REFRESH_S
from penstock.client.jobs import FLOW, STOP_S
from penstock.client.leasing import RANGES_MAX, Popping, by_queue, ranges_of
from penstock.client.positions import Batch, not_read
from penstock.client.pulling import bounds_of, offset_of
from penstock.client.retry import TIMEOUT_S, BackOff, worth_another_try
from penstock.client.subscription import LOOK_S, Subscription, Topics
from penstock.client.task_scope import TaskScope
from penstock.client.unfinished import Flow
from penstock.client.wire_link import WireLinks, ask, call
from penstock.errors import InvalidRequest, NoRoute, PenstockError, QueueNotFound
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Link, Links
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, LeavePopped, Pop, Popped, Range, SendPoppedBack
from penstock.protocol.requests.retries import SentBack
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import retry_topic

INVISIBLE_S: Final = 60.0
POP_WAIT_S: Final = 15.0
BYTES_MAX: Final = 1 << 20
"""Bodies of one batch, unless its first is larger."""
SPAN_MAX: Final = 1 << 62
"""Messages wait for no other one of their queue."""


class PopConsumer(OnlyAsync):
    """Pops messages of topics for a group. Use it with ``async with``; iterate as with a ``Consumer``.

    Args:
        group: name of the group; all its consumers share every queue. It must have no members (``Consumer``).
        topics: what to read, as for ``Consumer``; the same for all consumers of the group.
        servers: name servers, ``"host:port,host:port"`` or a list.
        start: where to begin in queues from which the group has neither popped nor committed anything.
        invisible_s: seconds for which a message is leased before it is delivered again, at most 12 hours. The consumer
            extends the leases of messages that wait for the program or that a handler processes.
        attempts_max: number of attempts after which a message becomes a dead letter of the group.
        retry_delays_s: seconds that a returned message waits before its second attempt, its third, and so on; the
            broker's setting if left out.
        batch_max: maximum number of messages per batch.
        timeout_s: seconds after which entering the block or a call fails.
        links: connections other than TCP, for programs that embed the servers.

    Raises:
        InvalidRequest: an argument is illegal.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        servers: str | Sequence[str] = SERVERS,
        start: Start = "latest",
        invisible_s: float = INVISIBLE_S,
        attempts_max: int = ATTEMPTS_MAX,
        retry_delays_s: Iterable[float] | None = None,
        batch_max: int = 500,
        timeout_s: float = TIMEOUT_S,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_group_name(group, hint="the group comes first: PopConsumer(group, topics)")
        check_seconds("invisible_s", invisible_s)
        check_seconds("timeout_s", timeout_s)
        check_count("batch_max", batch_max)
        self.group = group
        self._subscription = Subscription(topics, start, retry_topic(group))
        self.topics = self._subscription.topics
        self._attempts = attempts_of(attempts_max, retry_delays_s)
        self._invisible_s = invisible_s
        self._batch_max = batch_max
        self._timeout_s = timeout_s
        self._servers = servers
        self._links = links
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._taker = f"taker-{self._rng.getrandbits(64):016x}"
        self._back_off = BackOff()
        self._wires, self._tasks = TaskScope(), TaskScope()
        self._queues: dict[MessageQueue, tuple[Popping, Link]] = {}
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
            links = self._links or WireLinks(self._wires, clock=self._clock, rng=self._rng)
            self._discovery = Discovery(self._servers, links, clock=self._clock, fresh_s=REFRESH_S / 2)
            await self._repeat(self._find)
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
        """Ends the popping, gives back what is not acknowledged, closes the connections."""
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
        for queue, offsets in self._given(messages, "ack"):
            for offset in offsets:
                queue.in_hand.finish(offset)
        await self._repeat(self._acknowledge)

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
        check_seconds("invisible_s", invisible_s)
        for queue, offsets in self._given(messages, "extend"):
            if not invisible_s:
                queue.in_hand.drop(offsets)
            await self._extend(queue, ranges_of(offsets), invisible_s)

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
        await self._handle(work, concurrency, self._batch_max, flow, stop_s)

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
        await self._repeat(self._acknowledge)
        await self._give_all_back()

    def stop(self) -> None:
        """Ends ``handle``: it starts no further message, and returns when running calls are finished and
        acknowledged."""
        if self._handling is not None:
            self._handling.stop()

    # -- leases

    def _given(self, messages: object, method: str) -> list[tuple[Popping, list[int]]]:
        given = [messages] if isinstance(messages, ReceivedMessage) else messages
        if not isinstance(given, Sequence):
            raise InvalidRequest(f"{method} takes received messages, not {messages!r:.100}")
        for message in given:
            check_received(message, method)
        found = []
        for queue, offsets in by_queue(given).items():
            if queue not in self._queues:
                raise not_read(queue)
            found.append((self._queues[queue][0], offsets))
        return found

    async def _acknowledge(self) -> None:
        """Says which messages are done, of all queues at once. Raises ``PenstockError``: it is said again later."""
        failures: list[PenstockError] = []

        async def tell(queue: Popping, link: Link, ranges: tuple[Range, ...]) -> None:
            try:
                await call(link, AckPopped(self.group, queue.queue.name, ranges))
            except QueueNotFound:
                pass  # its topic was deleted
            except PenstockError as error:
                queue.in_hand.not_told(ranges)
                failures.append(error)
            except BaseException:
                queue.in_hand.not_told(ranges)
                raise

        async with anyio.create_task_group() as tasks:
            for queue, link in list(self._queues.values()):
                done = queue.in_hand.take_done()
                for at in range(0, len(done), RANGES_MAX):
                    tasks.start_soon(tell, queue, link, done[at : at + RANGES_MAX])
        if failures:
            raise failures[0]

    async def _send_back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SentBack:
        self._check_open()
        if message.queue not in self._queues:
            raise not_read(message.queue)
        queue, link = self._queues[message.queue]
        asked = self._attempts.send_back((self.group, self._taker, 0), message, after_s, reason)
        request = SendPoppedBack(
            asked.group, asked.queue, asked.member, asked.offset, asked.delay_ms, asked.attempts_max, asked.reason
        )
        answer: list[SentBack] = []

        async def send() -> None:
            answer.append(await ask(link, request, SentBack))

        await self._repeat(send)
        queue.in_hand.drop([message.offset])
        if answer[-1].due_ms:
            await self._pop_from(MessageQueue(message.queue.broker, self._subscription.retry_topic, 0), link)
        return answer[-1]

    async def _extend(self, queue: Popping, ranges: tuple[Range, ...], invisible_s: float) -> None:
        link = self._queues[queue.queue][1]
        for at in range(0, len(ranges), RANGES_MAX):
            some = ranges[at : at + RANGES_MAX]
            await call(link, ExtendPopped(self.group, queue.queue.name, self._taker, some, invisible_s))

    async def _keep_leases(self) -> None:
        """Extends what waits here for the program, and what a handler has; the rest is the program's to extend."""
        while True:
            await anyio.sleep(self._invisible_s / 3)
            for queue, _link in list(self._queues.values()):
                waiting = [one.offset for batch, _ in self._ready if batch.position is queue for one in batch.messages]
                ranges = ranges_of(waiting) + (queue.in_hand.open() if self._handling is not None else ())
                with contextlib.suppress(PenstockError):  # a message that is not extended is delivered again
                    await self._extend(queue, ranges, self._invisible_s)

    async def _give_all_back(self) -> None:
        """Returns all leased messages, so that others get them at once."""
        ready, self._ready = self._ready, deque()
        for batch, taken in ready:
            batch.hand_over()
            taken.set()
        for queue, _link in self._queues.values():
            ranges = queue.in_hand.open()
            queue.in_hand.drop([offset for first, end in ranges for offset in range(first, end)])
            with contextlib.suppress(PenstockError):
                await self._extend(queue, ranges, 0.0)

    async def _leave(self) -> None:
        """Returns messages whose replies did not arrive, too."""
        for link in {queue.broker: link for queue, (_popping, link) in self._queues.items()}.values():
            with contextlib.suppress(PenstockError):
                await call(link, LeavePopped(self.group, self._taker))

    # -- queues

    def _check_open(self) -> None:
        if self._discovery is None:
            raise InvalidRequest("this consumer is not open", hint="use it inside `async with PopConsumer(...) as c:`")

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeats a call until it succeeds, its error cannot be corrected, or ``timeout_s`` is over."""
        self._check_open()
        deadline, attempt = self._clock.monotonic() + self._timeout_s, 0
        while True:
            try:
                await work()
                return
            except PenstockError as error:
                if not worth_another_try(error, self._clock.monotonic(), deadline):
                    raise
                attempt += 1
            await anyio.sleep(self._back_off.wait_s(attempt, self._rng))

    async def _keep_finding(self) -> None:
        while True:
            await anyio.sleep(LOOK_S if self._subscription.waits else REFRESH_S)
            with contextlib.suppress(PenstockError):
                await self._find()

    async def _find(self) -> None:
        """Begins to pop queues that are new to us."""
        assert self._discovery is not None
        discovery, subscription = self._discovery, self._subscription
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
            for number in range(route.queues):
                await self._pop_from(MessageQueue(route.broker, topic, number), discovery.link(route.address))

    async def _pop_from(self, queue: MessageQueue, link: Link) -> None:
        if queue in self._queues:
            return
        bounds = (await bounds_of(link, [queue.name]))[0]
        begin = await offset_of(link, bounds, self._subscription.start_of(queue.topic))
        if queue not in self._queues:
            popping = Popping(queue, begun=begin)
            self._queues[queue] = popping, link
            self._tasks.start_soon(self._keep_popping, popping, link)

    async def _keep_popping(self, queue: Popping, link: Link) -> None:
        failures, name = 0, queue.queue.name
        while True:
            request = Pop(
                self.group,
                name,
                self._taker,
                queue.begun,
                self._invisible_s,
                self._batch_max,
                BYTES_MAX,
                POP_WAIT_S,
                self._attempts.max,
            )
            try:
                popped = await ask(link, request, Popped)
                failures = 0
            except PenstockError as error:
                if not (error.retryable or isinstance(error, QueueNotFound)):
                    self._failure = self._failure or error
                    self._changed.set()
                    return
                failures += 1
                await anyio.sleep(self._back_off.wait_s(failures, self._rng))
                continue
            if popped.count:
                taken = anyio.Event()
                self._ready.append((queue.batch(popped), taken))
                self._changed.set()
                await taken.wait()
