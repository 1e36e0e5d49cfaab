"""Reads the queues of a topic without a group and without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from penstock.blocking.exchange import Exchange
from penstock.blocking.pulls import WAIT_S_MAX, Pulls, bounds_of, offset_at, offset_of
from penstock.blocking.routes import Routes
from penstock.client.arguments import OnlyBlocking, Place, Start, beginning_of, check_queue, check_wait
from penstock.client.completeness import brokers_to_read
from penstock.client.positions import UNSET, Position, PullLimits, chosen_tags, not_read
from penstock.client.retry import TIMEOUT_S
from penstock.client.terms import check_filter
from penstock.errors import InvalidRequest
from penstock.protocol.addresses import SERVERS
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.topics import Bounds
from penstock.protocol.topic_names import topic_of
from penstock.world import Clock, RealClock, Rng, new_rng
from topicmap.queues import topic_queue


class Reader(OnlyBlocking):
    """As ``penstock.Reader``, for ``with`` and ``for``. Args and errors are the same."""

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
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        self.topic = topic_of(topic)
        self._queues = None if queues is None else sorted(set(queues))
        self._start = beginning_of(start)
        self._until_end = until_end
        self._allow_incomplete = allow_incomplete
        self._routes = Routes(servers, timeout_s)
        limits = PullLimits(batch_max, prefetch_bytes, chosen_tags(tags), check_filter(filter))
        self._pulls = Pulls(Exchange(), limits, clock or RealClock(), rng or new_rng())
        self._positions: dict[Position, str] = {}  # and the address of its broker
        self._open = False

    def __enter__(self) -> Reader:
        """Finds the queues. Raises ``NoRoute``, ``BrokerAway``, ``QueueNotFound``, ``Unavailable``, ``TimedOut``."""
        try:
            self._find()
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
            elif self._until_end and all(position.finished for position in self._positions):
                return

    def messages(self) -> Iterator[ReceivedMessage]:
        """The messages one by one."""
        for batch in self:
            yield from batch

    def poll(self, wait_s: float) -> list[ReceivedMessage]:
        """The next batch, or an empty list when none comes in ``wait_s`` seconds."""
        self._check_open()
        check_wait("wait_s", wait_s)
        batch = self._pulls.take(wait_s)
        return [] if batch is None else batch.hand_out()

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What is read, sorted."""
        return tuple(sorted(position.queue for position in self._positions))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset of each queue: behind what was handed out."""
        return {position.queue: position.handed_out for position in self._positions}

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Where each queue begins and ends now."""
        self._check_open()
        found: dict[MessageQueue, Bounds] = {}
        for position, address in self._positions.items():
            found[position.queue] = bounds_of(self._routes.link(address), [position.queue.name])[0]
        return found

    def seek(self, queue: MessageQueue, place: Place) -> None:
        """Goes on reading a queue at an offset, at either end, or at a time (``datetime``).

        Raises ``QueueNotFound`` and ``OffsetOutOfRange``.
        """
        self._check_open()
        check_queue(queue)
        for position, address in self._positions.items():
            if position.queue == queue:
                position.begin(offset_at(self._routes.link(address), queue.name, place))
                return
        raise not_read(queue)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidRequest("this reader is not open", hint="use it inside `with Reader(...) as r:`")

    def _find(self) -> None:
        for route in brokers_to_read(self._routes.holders(self.topic), self.topic, self._allow_incomplete):
            numbers = range(route.queues) if self._queues is None else self._queues
            link = self._routes.link(route.address)
            names = tuple(topic_queue(self.topic, number) for number in numbers)
            reply = link.ask(QueryBounds(names), BoundsReply)
            for bound in reply.bounds:
                position = Position(
                    queue_named(route.broker, bound.queue), stop_at=bound.end if self._until_end else UNSET
                )
                position.log_id = reply.log_id
                position.begin(offset_of(link, bound, self._start))
                self._positions[position] = route.address
                self._pulls.add(position, link)
