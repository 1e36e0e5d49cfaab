"""Reads the queues of a topic without a group: for tools, tests and programs that keep their positions themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

import anyio

from penstock.client.arguments import OnlyAsync, Place, Start, beginning_of, check_queue, check_seconds
from penstock.client.completeness import brokers_to_read
from penstock.client.discovery import Discovery
from penstock.client.positions import UNSET, PullLimits, chosen_tags, not_read
from penstock.client.pulling import Held, Intake, MessageStream, bounds_of, offset_at, offset_of
from penstock.client.retry import TIMEOUT_S
from penstock.client.task_scope import TaskScope
from penstock.client.terms import check_filter
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import InvalidRequest, TimedOut
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Link, Links
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.topic_names import topic_of
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import topic_queue


class Reader(OnlyAsync):
    """Every message of a topic, or of some of its queues. Use it with ``async with``; iterate as with a ``Consumer``.

    Args:
        topic: what to read, named as in ``Message``.
        queues: numbers of the queues to read, at every broker; all of them if left out.
        servers: name servers, ``"host:port,host:port"`` or a list.
        start: where to begin: at the first message, with new ones, or with what was stored at or after a time.
        until_end: iterate to the end that each queue has now, and stop there.
        tags: only messages with one of these tags, or with this one.
        filter: only messages that this selector wants, in SQL-92's words over their properties.
        timeout_s: deadline of entering the block.
        allow_incomplete: leave out brokers that have the topic and are away; without it they are an error.
    """

    def __init__(
        self,
        topic: str,
        *,
        queues: Iterable[int] | None = None,
        servers: str | Sequence[str] = SERVERS,
        start: Start = "earliest",
        until_end: bool = False,
        tags: str | Iterable[str] = (),
        filter: str = "",
        batch_max: int = 500,
        prefetch_bytes: int = 4 * 1024 * 1024,
        timeout_s: float = TIMEOUT_S,
        allow_incomplete: bool = False,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self.topic = topic_of(topic)
        self._queues = None if queues is None else sorted(set(queues))
        self._servers = servers
        self._start = beginning_of(start)
        self._until_end = until_end
        self._allow_incomplete = allow_incomplete
        self._limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), check_filter(filter))
        self._timeout_s = timeout_s
        self._links = links
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._tasks = TaskScope()
        self._held: list[Held] = []
        self._intake: Intake | None = None

    async def __aenter__(self) -> Reader:
        """Finds the queues. Raises ``NoRoute``, ``BrokerAway``, ``QueueNotFound``, ``Unavailable``, ``TimedOut``."""
        await self._tasks.open()
        try:
            links = self._links or WireLinks(self._tasks, clock=self._clock, rng=self._rng)
            intake = Intake(self._tasks, self._limits, self._rng, ends=self._until_end)
            with anyio.move_on_after(self._timeout_s) as patience:
                await self._find(Discovery(self._servers, links, clock=self._clock))
            if patience.cancelled_caught:
                raise TimedOut(f"nobody said within {self._timeout_s:g} s where the queues of {self.topic} begin")
            for held in self._held:
                intake.pull(held)
        except BaseException:
            await self._tasks.close()
            raise
        self._intake = intake
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._intake = None
        await self._tasks.close()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        batch = await self._opened().take()
        if batch is None:
            raise StopAsyncIteration
        return batch.hand_out()

    def messages(self) -> MessageStream:
        """The messages one by one."""
        return MessageStream(self._opened())

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What is read, sorted."""
        return tuple(sorted(held.queue for held in self._held))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset of each queue: behind what was handed out."""
        return {held.queue: held.handed_out for held in self._held}

    async def bounds(self) -> dict[MessageQueue, Bounds]:
        """Where each queue begins and ends now."""
        self._opened()
        found: dict[MessageQueue, Bounds] = {}
        for held in self._held:
            found[held.queue] = (await bounds_of(held.link, [held.queue.name]))[0]
        return found

    async def seek(self, queue: MessageQueue, place: Place) -> None:
        """Goes on reading a queue at an offset, at either end, or at a time (``datetime``).

        Raises ``QueueNotFound`` and ``OffsetOutOfRange``.
        """
        self._opened()
        check_queue(queue)
        for held in self._held:
            if held.queue == queue:
                held.begin(await offset_at(held.link, queue.name, place))
                return
        raise not_read(queue)

    def _opened(self) -> Intake:
        if self._intake is None:
            raise InvalidRequest("this reader is not open", hint="use it inside `async with Reader(...) as r:`")
        return self._intake

    async def _find(self, discovery: Discovery) -> None:
        holders = await discovery.holders(self.topic)
        for route in brokers_to_read(holders, self.topic, self._allow_incomplete):
            numbers = range(route.queues) if self._queues is None else self._queues
            names = [topic_queue(self.topic, number) for number in numbers]
            link = discovery.link(route.address)
            reply = await ask(link, QueryBounds(tuple(names)), BoundsReply)
            for bound in reply.bounds:
                queue = queue_named(route.broker, bound.queue)
                self._held.append(await self._begin(queue, link, bound, reply.log_id))

    async def _begin(self, queue: MessageQueue, link: Link, bound: Bounds, log_id: str) -> Held:
        held = Held(queue=queue, link=link, log_id=log_id, stop_at=bound.end if self._until_end else UNSET)
        held.begin(await offset_of(link, bound, self._start))
        return held
