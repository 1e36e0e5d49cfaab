"""Reads queues ahead without threads: one long poll per queue stays open at its broker between calls.

It keeps the positions that it reads and the batches that came, those of two pulls per queue at most. The rules of
positions and void batches are those of penstock/client/positions.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Protocol

from penstock.blocking.exchange import Exchange
from penstock.blocking.link import BlockingLink
from penstock.client.arguments import Beginning, Place, time_ms
from penstock.client.positions import UNSET, Batch, Position, place_offset
from penstock.client.retry import BackOff
from penstock.errors import NotAllowed, OffsetOutOfRange, PenstockError, QueueNotFound
from penstock.protocol.link import OnResult
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import BoundsReply, OffsetReply, QueryBounds, SeekTime
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import Bounds
from penstock.world import Clock, Rng

_log = logging.getLogger(__name__)

WAIT_S_MAX = 1.0
"""How long one wait may last before the caller returns to its other duties."""


class Asking(Protocol):
    """Source of pull requests and of the batch size: ``PullLimits``, or a consumer that pops."""

    @property
    def batch_max(self) -> int:
        """Maximum number of messages per batch."""
        ...

    def pull(self, position: Position, queues: int) -> Request:
        """The request for the next messages of one of ``queues`` queues; ``Position.advance`` takes its answer."""
        ...


class Pulls:
    """The queues that are read. One that is read without end is asked for also while its topic is deleted."""

    def __init__(self, exchange: Exchange, limits: Asking, clock: Clock, rng: Rng) -> None:
        self._exchange = exchange
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._back_off = BackOff()
        self._links: dict[Position, BlockingLink] = {}
        self._busy: dict[Position, int] = {}  # version for which a pull is open, or its first batch was not taken yet
        self._not_before: dict[Position, float] = {}
        self._failures: dict[Position, int] = {}
        self._ready: deque[Batch] = deque()
        self._failure: PenstockError | None = None
        self._worked: dict[MessageQueue, Position] = {}  # ordered queues that went while the program was at work there

    def add(self, position: Position, link: BlockingLink) -> None:
        self._links[position] = link

    def drop(self, position: Position) -> None:
        """Stops handing out messages of this queue."""
        position.live = False
        if position.hands and position.lease is not None:
            self._worked[position.queue] = position
        for known in (self._links, self._busy, self._not_before, self._failures):
            known.pop(position, None)

    @property
    def waiting(self) -> list[Batch]:
        """Batches that wait for the program."""
        return [batch for batch in self._ready if not batch.void]

    def hold_up(self, position: Position, offset: int, wait_s: float) -> None:
        """Holds a queue back for this long; then this message and the following ones are handed out."""
        position.hold_up(offset)
        self._not_before[position] = self._clock.monotonic() + wait_s

    def take(
        self, wait_s: float, tend: Callable[[], None] = lambda: None, fits: Callable[[Batch], bool] | None = None
    ) -> Batch | None:
        """The next batch, or ``None`` when none comes in time or every queue was read to its end.

        ``tend`` is called before every wait. ``fits``: which batches are wanted now. Raises the error that no
        repetition of a pull mends.
        """
        deadline = self._clock.monotonic() + wait_s
        while True:
            tend()
            batch = self._take_ready(fits)
            if batch is not None:
                return batch
            if self._failure is not None:
                raise self._failure
            self._pull()
            left = deadline - self._clock.monotonic()
            if left <= 0 or (self._links and all(position.finished for position in self._links)):
                return None
            self._exchange.wait(min(left, WAIT_S_MAX, self._next_due()))

    def _take_ready(self, fits: Callable[[Batch], bool] | None) -> Batch | None:
        left: list[Batch] = []
        found = None
        while self._ready and found is None:
            batch = self._ready.popleft()
            if batch.void:
                continue
            is_behind = any([batch.position is one.position for one in left])
            if is_behind or batch.position.waits or (fits is not None and not fits(batch)):
                left.append(batch)  # and so are those behind it
                continue
            found = batch
        self._ready.extendleft(reversed(left))
        if found is not None and found.is_first:
            self._busy.pop(found.position, None)
            if self._links[found.position].is_open:
                self._pull()  # it is on its way while the program goes on
        return found

    def _pull(self) -> None:
        """Opens a pull for each queue that has none, those of one broker with one write."""
        now = self._clock.monotonic()
        due: dict[BlockingLink, list[tuple[Request, OnResult]]] = {}
        for position, link in self._links.items():
            busy = self._busy.get(position) == position.version
            before = self._worked.get(position.queue)  # of one that came back
            busy = busy or (before is not None and before.hands > 0)
            if busy or position.paused or position.finished or now < self._not_before.get(position, 0.0):
                continue
            self._busy[position] = position.version
            on_result = partial(self._arrived, position, position.version)
            due.setdefault(link, []).append((self._limits.pull(position, len(self._links)), on_result))
        for link, requests in due.items():
            self._exchange.submit(link, requests)

    def _next_due(self) -> float:
        """Seconds until a queue whose pull failed is tried again."""
        now = self._clock.monotonic()
        return min((max(0.0, at - now) for at in self._not_before.values() if at > now), default=WAIT_S_MAX)

    def _arrived(self, position: Position, version: int, result: Result) -> None:
        if not position.live or position.version != version:
            return  # given up or sought elsewhere meanwhile
        self._busy.pop(position, None)
        if isinstance(result, PenstockError):
            self._failed(position, result)
            return
        self._failures.pop(position, None)
        batches = position.advance(result, self._limits.batch_max)
        if batches:
            self._busy[position] = version
            self._ready.extend(batches)

    def _failed(self, position: Position, error: PenstockError) -> None:
        try:
            if isinstance(error, OffsetOutOfRange):
                (bounds,) = bounds_of(self._links[position], [position.queue.name])
                gone = position.pass_gap(bounds)
                if gone:
                    _log.warning("%s: %d messages before %d are gone", position.queue, gone, bounds.min)
                return
        except PenstockError as another:
            error = another
        if not (error.retryable or (position.stop_at == UNSET and isinstance(error, QueueNotFound))):
            self._failure = self._failure or error
            return
        if isinstance(error, NotAllowed) and position not in self._failures:
            _log.warning("%s waits: %s", position.queue, error)
        self._failures[position] = self._failures.get(position, 0) + 1
        wait_s = self._back_off.wait_s(self._failures[position], self._rng)
        self._not_before[position] = self._clock.monotonic() + wait_s


def one_by_one(batch: Batch) -> Iterator[ReceivedMessage]:
    """The messages of a batch, until it is void; each counts as handed out when it is returned."""
    position, last = batch.position, batch.messages[-1]
    for message in batch.messages:
        if position.waits and not batch.void:
            position.rewind()
        if batch.void:
            return
        position.handed_out = batch.after if message is last else message.offset + 1
        yield message


def bounds_of(link: BlockingLink, queues: Iterable[str]) -> tuple[Bounds, ...]:
    """The bounds of queues, in the order asked."""
    return link.ask(QueryBounds(tuple(queues)), BoundsReply).bounds


def offset_at(link: BlockingLink, queue: str, place: Place) -> int:
    """The offset that a person means by a place. Raises ``OffsetOutOfRange``."""
    if isinstance(place, datetime):
        return offset_since(link, queue, time_ms("a place", place))
    return place_offset(bounds_of(link, [queue])[0], place)


def offset_of(link: BlockingLink, bounds: Bounds, start: Beginning) -> int:
    """The offset at which reading begins in a queue with these bounds."""
    if isinstance(start, int):
        return offset_since(link, bounds.queue, start)
    return place_offset(bounds, start)


def offset_since(link: BlockingLink, queue: str, stored_ms: int) -> int:
    """The first offset stored at or after a time."""
    return link.ask(SeekTime(queue, stored_ms), OffsetReply).offset
