"""Reads the queues of a topic without a group and without an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from penstock.blocking.exchange import Exchange
from penstock.blocking.link import BlockingLink
from penstock.blocking.pulls import WAIT_S_MAX, Pulls, bounds_of, offset_at, offset_of, one_by_one
from penstock.blocking.routes import Routes
from penstock.client.arguments import (
    Beginning,
    OnlyBlocking,
    Place,
    Start,
    beginning_of,
    check_flag,
    check_queue,
    check_text,
    check_wait,
    queues_of,
)
from penstock.client.chosen_queues import ChosenQueues, Queues, later_start
from penstock.client.completeness import brokers_to_read
from penstock.client.credentials import Tls, credentials_of
from penstock.client.holdings import REFRESH_S
from penstock.client.positions import UNSET, Batch, Position, PullLimits, chosen_tags, not_read
from penstock.client.retry import TIMEOUT_S
from penstock.client.terms import check_filter
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.topic_names import topic_of
from penstock.world import Clock, RealClock, Rng, new_rng


@dataclass(slots=True)
class _Held:
    position: Position
    link: BlockingLink


class Reader(OnlyBlocking):
    """A reader as ``penstock.Reader``, for ``with`` and ``for``. Args and errors are the same."""

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
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        check_flag("until_end", until_end)
        check_flag("allow_incomplete", allow_incomplete)
        check_text("topic", topic)
        self.topic = topic_of(topic)
        self._chosen = ChosenQueues(queues, self.topic)
        self._start = beginning_of(start)
        self._until_end = until_end
        self._allow_incomplete = allow_incomplete
        credentials = credentials_of(user, password, token, tls)
        self._routes = Routes(servers, timeout_s, credentials)
        limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), check_filter(filter))
        self._clock = clock or RealClock()
        self._pulls = Pulls(Exchange(), limits, self._clock, rng or new_rng())
        self._held: dict[MessageQueue, _Held] = {}
        self._opened_ms = 0
        self._look_again = 0.0
        self._open = False

    def __enter__(self) -> Reader:
        """Finds the queues. Raises ``NoRoute``, ``BrokerAway``, ``QueueNotFound``, ``Unavailable``, ``TimedOut``."""
        for held in self._held.values():
            self._pulls.drop(held.position)
        self._held.clear()
        self._opened_ms = self._clock.wall_ms()
        try:
            self._read(self._find())
        except BaseException:
            self.close()
            raise
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._open = False
        self._routes.close()

    def __iter__(self) -> Iterator[list[ReceivedMessage]]:
        """Batches, each of one queue; without end unless ``until_end``."""
        while True:
            batch = self.poll(WAIT_S_MAX)
            if batch:
                yield batch
            elif self._is_over:
                return

    def messages(self) -> Iterator[ReceivedMessage]:
        """The messages one by one."""
        while not self._is_over:
            batch = self._take(WAIT_S_MAX)
            if batch is not None:
                yield from one_by_one(batch)

    def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch, or an empty list when none comes in ``wait_s`` seconds."""
        check_wait("wait_s", wait_s)
        batch = self._take(wait_s)
        return [] if batch is None else batch.hand_out()

    def _take(self, wait_s: float) -> Batch | None:
        self._check_open()
        return self._pulls.take(wait_s, self._tend)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that are read, sorted."""
        return tuple(sorted(self._held))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset of each queue, behind the last message that was handed out."""
        return {queue: held.position.handed_out for queue, held in self._held.items()}

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """The current bounds of each queue."""
        self._check_open()
        return {queue: bounds_of(held.link, [queue.name])[0] for queue, held in self._held.items()}

    def assign(self, queues: Queues) -> None:
        """Reads these queues from now on. Args and errors as for ``penstock.Reader.assign``."""
        self._check_open()
        before, self._chosen = self._chosen, ChosenQueues(queues, self.topic)
        try:
            new = self._find()
        except BaseException:
            self._chosen = before
            raise
        for queue in [one for one in self._held if one not in self._chosen]:
            self._pulls.drop(self._held.pop(queue).position)
        self._read(new)

    def seek(self, queue: MessageQueue, place: Place) -> None:
        """Goes on reading a queue at an offset, at either end, or at a time (``datetime``).

        Raises ``QueueNotFound`` and ``OffsetOutOfRange``.
        """
        self._check_open()
        check_queue(queue)
        held = self._held_of(queue)
        held.position.begin(offset_at(held.link, queue.name, place))

    def pause(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Stops delivery from these queues until ``resume``. Raises ``QueueNotFound``."""
        self._check_open()
        for position in [self._held_of(queue).position for queue in queues_of(queues)]:
            position.pause()

    def resume(self, queues: MessageQueue | Iterable[MessageQueue]) -> None:
        """Continues with paused queues. Raises ``QueueNotFound``."""
        self._check_open()
        for position in [self._held_of(queue).position for queue in queues_of(queues)]:
            position.paused = False

    @property
    def paused(self) -> tuple[MessageQueue, ...]:
        """The queues that are paused, sorted."""
        return tuple(sorted(queue for queue, held in self._held.items() if held.position.paused))

    def _held_of(self, queue: MessageQueue) -> _Held:
        if queue not in self._held:
            raise not_read(queue)
        return self._held[queue]

    @property
    def _is_over(self) -> bool:
        return (
            self._until_end and all(held.position.finished for held in self._held.values()) and not self._pulls.waiting
        )

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidRequest("this reader is not open", hint="use it inside `with Reader(...) as r:`")

    # -- queues

    def _tend(self) -> None:
        """Looks for queues that are made later, and for brokers that have moved."""
        if self._until_end or self._clock.monotonic() < self._look_again:
            return
        self._look_again = self._clock.monotonic() + REFRESH_S
        with contextlib.suppress(PenstockError):
            self._read(self._find(is_later=True))

    def _read(self, new: Iterable[_Held]) -> None:
        for held in new:
            self._held[held.position.queue] = held
            self._pulls.add(held.position, held.link)
        self._look_again = self._clock.monotonic() + REFRESH_S

    def _find(self, *, is_later: bool = False) -> list[_Held]:
        """Queues that are new to us, with the offset to begin at. ``is_later``: after the reader was opened; absent
        brokers and queues are left out."""
        holders, new = self._routes.holders(self.topic), list[_Held]()
        routes = brokers_to_read(holders, self.topic, self._allow_incomplete or is_later)
        if not is_later:
            self._chosen.check_found(routes)
        start = later_start(self._start, self._opened_ms) if is_later else self._start
        for route in routes:
            link = self._routes.link(route.address)
            queues = self._chosen.at(route, self.topic)
            for known in [self._held[queue] for queue in queues if queue in self._held]:
                if known.link is not link:
                    self._pulls.add(known.position, link)
                    known.link = link
            names = {queue.name: queue for queue in queues if queue not in self._held}
            if is_later:
                names = {name: queue for name, queue in names.items() if queue.number < route.queues}
            if names:
                reply = link.ask(QueryBounds(tuple(names)), BoundsReply)
                new += [self._begin(names[one.queue], link, one, reply.log_id, start) for one in reply.bounds]
        return new

    def _begin(self, queue: MessageQueue, link: BlockingLink, bound: Bounds, log_id: str, start: Beginning) -> _Held:
        position = Position(queue, stop_at=bound.end if self._until_end else UNSET, log_id=log_id)
        position.begin(offset_of(link, bound, start))
        return _Held(position, link)
