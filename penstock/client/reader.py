"""Reads queues of a topic without a group: for tools, tests and programs that keep their positions themselves.

A reader knows a queue by its name at its broker: it continues with a topic that was deleted and made again, which may
have more queues than before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType

import anyio

from penstock.client.addressing import check_servers
from penstock.client.arguments import (
    Beginning,
    OnlyAsync,
    Place,
    Start,
    beginning_of,
    check_flag,
    check_queue,
    check_seconds,
    check_text,
    queues_of,
)
from penstock.client.chosen_queues import ChosenQueues, Queues, later_start
from penstock.client.completeness import brokers_to_read
from penstock.client.credentials import Tls, credentials_of
from penstock.client.discovery import Discovery
from penstock.client.holdings import REFRESH_S
from penstock.client.positions import UNSET, PullLimits, chosen_tags, not_read
from penstock.client.pulling import Held, Intake, MessageStream, bounds_of, offset_at, offset_of
from penstock.client.retry import TIMEOUT_S
from penstock.client.task_scope import TaskScope
from penstock.client.terms import check_filter
from penstock.client.wire_link import WireLinks
from penstock.errors import InvalidRequest, PenstockError, TimedOut
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Link, Links
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.topic_names import topic_of
from penstock.world import Clock, RealClock, Rng, new_rng


class Reader(OnlyAsync):
    """Every message of a topic, or of some of its queues. Use it with ``async with``; iterate as with a ``Consumer``.

    Args:
        topic: what to read, named as in ``Message``.
        queues: which queues to read: numbers, at every broker; or ``MessageQueue``s; if left out all of them, also
            those that are made later. ``assign`` changes it.
        servers: name servers, ``"host:port,host:port"`` or a list.
        start: where to begin: at the first message, with new ones, or with the first one stored at or after a time.
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
        queues: Queues = None,
        servers: str | Sequence[str] = SERVERS,
        start: Start = "earliest",
        until_end: bool = False,
        tags: str | Iterable[str] = (),
        filter: str = "",
        batch_max: int = 500,
        prefetch_bytes: int = 4 * 1024 * 1024,
        timeout_s: float = TIMEOUT_S,
        allow_incomplete: bool = False,
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
        check_flag("until_end", until_end)
        check_flag("allow_incomplete", allow_incomplete)
        check_text("topic", topic)
        self.topic = topic_of(topic)
        self._chosen = ChosenQueues(queues, self.topic)
        self._servers = servers
        self._start = beginning_of(start)
        self._until_end = until_end
        self._allow_incomplete = allow_incomplete
        self._limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), check_filter(filter))
        self._timeout_s = timeout_s
        self._links = links
        self._credentials = credentials_of(user, password, token, tls)
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._tasks = TaskScope()
        self._held: dict[MessageQueue, Held] = {}
        self._opened_ms = 0
        self._discovery: Discovery | None = None
        self._intake: Intake | None = None

    async def __aenter__(self) -> Reader:
        """Finds the queues. Raises ``NoRoute``, ``BrokerAway``, ``QueueNotFound``, ``Unavailable``, ``TimedOut``."""
        await self._tasks.open()
        try:
            links = self._links or WireLinks(
                self._tasks, clock=self._clock, rng=self._rng, credentials=self._credentials
            )
            intake = Intake(self._tasks, self._limits, self._rng, ends=self._until_end)
            self._discovery = Discovery(self._servers, links, clock=self._clock, fresh_s=0.0)
            self._tasks.start_soon(self._discovery.keep_following)
            self._opened_ms = self._clock.wall_ms()
            self._held.clear()
            for held in await self._in_time(self._find):
                intake.pull(held)
            if not self._until_end:
                self._tasks.start_soon(self._keep_finding, intake)
        except BaseException:
            await self._tasks.close()
            raise
        self._intake = intake
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._intake = self._discovery = None
        await self._tasks.close()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        batch = await self._opened().take()
        if batch is None:
            raise StopAsyncIteration
        return batch.hand_out()

    async def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch; an empty list after ``wait_s`` seconds, or where every queue is read to its end."""
        intake = self._opened()
        check_seconds("wait_s", wait_s)
        with anyio.move_on_after(wait_s):
            batch = await intake.take()
            return [] if batch is None else batch.hand_out()
        return []

    def messages(self) -> MessageStream:
        """The messages one by one."""
        return MessageStream(self._opened())

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are read, sorted."""
        return tuple(sorted(self._held))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset of each queue, behind the last message that was handed out."""
        return {queue: held.handed_out for queue, held in self._held.items()}

    async def bounds(self) -> dict[MessageQueue, Bounds]:
        """The current bounds of each queue."""
        self._opened()
        found: dict[MessageQueue, Bounds] = {}
        for queue, held in list(self._held.items()):
            found[queue] = (await bounds_of(held.link, [queue.name]))[0]
        return found

    async def assign(self, queues: Queues) -> None:
        """Reads these queues from now on, as the argument ``queues`` names them; ``None`` for all. Those that were read
        before keep their positions, and stay paused; the others begin as ``start`` says.

        Raises ``QueueNotFound`` with nothing changed, and as entering the block.
        """
        intake = self._opened()
        before, self._chosen = self._chosen, ChosenQueues(queues, self.topic)
        try:
            new = await self._in_time(self._find)
        except BaseException:
            self._chosen = before
            raise
        for queue in [one for one in self._held if one not in self._chosen]:
            intake.drop(self._held.pop(queue))
        for held in new:
            intake.pull(held)

    async def seek(self, queue: MessageQueue, place: Place) -> None:
        """Goes on reading a queue at an offset, at either end, or at a time (``datetime``).

        Raises ``QueueNotFound`` and ``OffsetOutOfRange``.
        """
        intake = self._opened()
        check_queue(queue)
        held = self._held_of(queue)
        held.begin(await offset_at(held.link, queue.name, place))
        intake.go_on(held)

    def pause(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Stops delivery from these queues, and reading ahead, until ``resume``. Raises ``QueueNotFound``."""
        self._opened()
        for held in [self._held_of(queue) for queue in queues_of(queues)]:
            held.pause()

    def resume(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Continues with paused queues. Raises ``QueueNotFound``."""
        self._opened()
        for held in [self._held_of(queue) for queue in queues_of(queues)]:
            held.resume()

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused, sorted."""
        return tuple(sorted(queue for queue, held in self._held.items() if held.paused))

    def _held_of(self, queue: MessageQueue) -> Held:
        if queue not in self._held:
            raise not_read(queue)
        return self._held[queue]

    def _opened(self) -> Intake:
        if self._intake is None:
            raise InvalidRequest("this reader is not open", hint="use it inside `async with Reader(...) as r:`")
        return self._intake

    # -- queues

    async def _in_time(self, find: Callable[[], Awaitable[list[Held]]]) -> list[Held]:
        with anyio.move_on_after(self._timeout_s):
            return await find()
        raise TimedOut(f"no broker said within {self._timeout_s:g} s where the queues of {self.topic} begin")

    async def _keep_finding(self, intake: Intake) -> None:
        """Looks for queues that are made later, and for brokers that have moved."""
        while True:
            await anyio.sleep(REFRESH_S)
            with contextlib.suppress(PenstockError):
                for held in await self._find(is_later=True):
                    intake.pull(held)

    async def _find(self, *, is_later: bool = False) -> list[Held]:
        """Begins to read queues that are new to us. ``is_later``: after the reader was opened; absent brokers and
        queues are left out."""
        assert self._discovery is not None
        discovery, chosen, new = self._discovery, self._chosen, list[Held]()
        holders = await discovery.holders(self.topic)
        routes = brokers_to_read(holders, self.topic, self._allow_incomplete or is_later)
        if not is_later:
            chosen.check_found(routes)
        start = later_start(self._start, self._opened_ms) if is_later else self._start
        for route in routes:
            link = discovery.link(route.address)
            queues = chosen.at(route, self.topic)
            for known in [self._held[queue] for queue in queues if queue in self._held]:
                known.go_by(link)
            names = {queue.name: queue for queue in queues if queue not in self._held}
            if is_later:
                names = {name: queue for name, queue in names.items() if queue.number < route.queues}
            if names:
                reply = await discovery.read(route.address, QueryBounds(tuple(names)), BoundsReply)
                new += [await self._begin(names[one.queue], link, one, reply.log_id, start) for one in reply.bounds]
        if chosen is not self._chosen:
            return []  # assigned anew meanwhile
        new = [held for held in new if held.queue not in self._held]
        self._held.update({held.queue: held for held in new})
        return new

    async def _begin(self, queue: MessageQueue, link: Link, bound: Bounds, log_id: str, start: Beginning) -> Held:
        held = Held(queue=queue, link=link, log_id=log_id, stop_at=bound.end if self._until_end else UNSET)
        held.begin(await offset_of(link, bound, start))
        return held
