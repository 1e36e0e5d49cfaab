"""Reads queues ahead of whoever takes the messages: one long poll per queue, one batch per queue in store.

Consumer and Reader share it. A ``Held`` is a queue that is being read and its positions; ``Intake`` keeps the pulling
tasks and the batches that came. The next pull of a queue begins when its batch was taken, so that what is kept is
bounded by one batch per queue. Invariants: batches of one queue are handed out in order, each once; after ``drop`` or
``seek`` nothing pulled before it is handed out any more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import anyio

from penstock.errors import InvalidRequest, OffsetOutOfRange, PenstockError
from penstock.link import Link
from penstock.message import Message, decode_batch
from penstock.requests import Bounds, BoundsReply, OffsetReply, Pull, Pulled, QueryBounds, SeekTime
from penstock.retry import BackOff
from penstock.task_scope import TaskScope
from penstock.wire_link import ask
from penstock.world import Rng

Start = Literal["earliest", "latest"]
"""Where reading begins in a queue without a committed offset."""

UNSET: Final = -1
PULL_WAIT_S: Final = 15.0
PULL_BYTES_MIN: Final = 64 * 1024

_log = logging.getLogger(__name__)


class QueueAt(NamedTuple):
    """A queue of one broker: ``orders:0`` of one broker is another queue than ``orders:0`` of the next."""

    broker: str
    queue: str


@dataclass(slots=True, eq=False)
class Held:
    """A queue that is being read.

    Attributes:
        offset: the next to pull.
        begun: where reading began.
        handed_out: the offset after the last message that was handed out: what a commit stores.
        committed: what the broker has stored, ``UNSET`` if nothing.
        committing: what is being stored just now.
        stop_at: the first offset that is not wanted any more, ``UNSET`` for none.
        version: goes up with every seek; what was pulled under another is not handed out.
    """

    at: QueueAt
    link: Link
    offset: int = UNSET
    begun: int = UNSET
    handed_out: int = UNSET
    committed: int = UNSET
    committing: int = UNSET
    stop_at: int = UNSET
    version: int = 0
    live: bool = True
    taken: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope | None = None

    def begin(self, offset: int) -> None:
        """Reading goes on from here; what was pulled so far is void."""
        self.offset = self.begun = self.handed_out = offset
        self.version += 1
        if self.scope is not None:
            self.scope.cancel()


class Batch(NamedTuple):
    """Messages of one queue, in order; ``offsets`` are those in that queue, ``after`` is where it goes on."""

    held: Held
    version: int
    messages: list[Message]
    offsets: list[int]
    after: int

    @property
    def void(self) -> bool:
        """Whether the queue was given up, or sought elsewhere, since this was pulled."""
        return not self.held.live or self.version != self.held.version


@dataclass(frozen=True, slots=True)
class PullLimits:
    """What one pull takes; ``prefetch_bytes`` is shared by all queues."""

    batch_max: int = 500
    prefetch_bytes: int = 4 * 1024 * 1024
    tags: tuple[str, ...] = ()


class Intake:
    """Pulls the queues that it is given and hands out what comes. With ``ends``, the end of all queues is the end;
    else it waits for queues to be given."""

    def __init__(self, tasks: TaskScope, limits: PullLimits, rng: Rng, *, ends: bool = False) -> None:
        self._ends = ends
        self._tasks = tasks
        self._limits = limits
        self._rng = rng
        self._back_off = BackOff()
        self._held: set[Held] = set()
        self._ready: deque[Batch] = deque()
        self._changed = anyio.Event()
        self._failure: PenstockError | None = None

    # -- the taker's side

    async def take(self) -> Batch | None:
        """The next batch; ``None`` when every queue was read to its ``stop_at``. Raises what ended the pulling."""
        while True:
            batch = self.take_ready()
            if batch is not None:
                return batch
            if self._failure is not None:
                raise self._failure
            if self._ends and not self._held:
                return None
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()

    def take_ready(self) -> Batch | None:
        """A batch that is in store, or ``None``."""
        while self._ready:
            batch = self._ready.popleft()
            batch.held.taken.set()
            if not batch.void:
                return batch
        return None

    # -- queues

    def pull(self, held: Held) -> None:
        """Begins to read a queue from ``held.offset``."""
        assert held.offset != UNSET
        self._held.add(held)
        self._tasks.start_soon(self._keep_pulling, held)

    def drop(self, held: Held) -> None:
        """Gives a queue up: nothing of it is handed out from now on."""
        held.live = False
        if held.scope is not None:
            held.scope.cancel()
        self._held.discard(held)
        self._changed.set()

    def fail(self, error: PenstockError) -> None:
        """Has ``take`` raise when the batches in store are taken."""
        self._failure = self._failure or error
        self._changed.set()

    async def _keep_pulling(self, held: Held) -> None:
        failures = 0
        while held.live and not held.offset >= held.stop_at > UNSET:
            with anyio.CancelScope() as held.scope:  # left by seek and drop
                try:
                    await self._pull_once(held)
                    failures = 0
                except PenstockError as error:
                    if not error.retryable:
                        self.fail(error)
                        break
                    failures += 1
                    await anyio.sleep(self._back_off.wait_s(failures, self._rng))
        self._held.discard(held)
        self._changed.set()

    async def _pull_once(self, held: Held) -> None:
        version, begin = held.version, held.offset
        bytes_max = max(PULL_BYTES_MIN, self._limits.prefetch_bytes // max(1, len(self._held)))
        wait_s = 0.0 if held.stop_at > UNSET else PULL_WAIT_S
        pull = Pull(held.at.queue, begin, bytes_max, self._limits.batch_max, wait_s, self._limits.tags)
        try:
            pulled = await ask(held.link, pull, Pulled)
        except OffsetOutOfRange:
            await self._pass_gap(held)
            return
        if held.version != version:
            return  # sought elsewhere while the answer was on its way
        held.offset = pulled.next
        batch = _batch(held, version, pulled)
        if not batch.messages:
            if held.handed_out == begin:
                held.handed_out = pulled.next  # nothing in between matched the tags
            return
        held.taken = anyio.Event()
        self._ready.append(batch)
        self._changed.set()
        await held.taken.wait()

    async def _pass_gap(self, held: Held) -> None:
        """Goes on behind messages that retention removed; an offset beyond the end is an error."""
        version = held.version
        bounds = (await bounds_of(held.link, [held.at.queue]))[0]
        if held.version != version:
            return
        if held.offset > bounds.end:
            raise OffsetOutOfRange(f"{held.at.queue} ends at {bounds.end}, before offset {held.offset}")
        if held.offset < bounds.min:
            _log.warning("%s: messages %d to %d are gone", held.at.queue, held.offset, bounds.min - 1)
            held.begin(bounds.min)


def _batch(held: Held, version: int, pulled: Pulled) -> Batch:
    offsets, messages = [], []
    for offset, message in decode_batch(pulled.count, pulled.body):
        if not offset >= held.stop_at > UNSET:
            offsets.append(offset)
            messages.append(message)
    after = min(pulled.next, held.stop_at) if held.stop_at > UNSET else pulled.next
    return Batch(held, version, messages, offsets, after)


async def bounds_of(link: Link, queues: Iterable[str]) -> tuple[Bounds, ...]:
    """Where queues begin and end, in the order asked."""
    return (await ask(link, QueryBounds(tuple(queues)), BoundsReply)).bounds


async def offset_at(link: Link, queue: str, place: int | Start) -> int:
    """The offset that a person means: a number, the first or the end. Raises ``OffsetOutOfRange``."""
    bounds = (await bounds_of(link, [queue]))[0]
    if place == "earliest":
        return bounds.min
    if place == "latest":
        return bounds.end
    if not isinstance(place, int):
        raise InvalidRequest(f"an offset is a number, 'earliest' or 'latest', not {place!r}")
    if not bounds.min <= place <= bounds.end:
        raise OffsetOutOfRange(f"{queue} has offsets {bounds.min} to {bounds.end}, not {place}")
    return place


async def offset_since(link: Link, queue: str, stored_ms: int) -> int:
    """The first offset stored at or after a time."""
    return (await ask(link, SeekTime(queue, stored_ms), OffsetReply)).offset


class MessageStream:
    """Messages one by one, of all queues. A message counts as handed out when it is returned."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._batch: Batch | None = None
        self._at = 0

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> Message:
        while self._batch is None or self._batch.void or self._at == len(self._batch.messages):
            self._batch, self._at = await self._intake.take(), 0
            if self._batch is None:
                raise StopAsyncIteration
        message, offset = self._batch.messages[self._at], self._batch.offsets[self._at]
        self._at += 1
        last = self._at == len(self._batch.messages)
        self._batch.held.handed_out = self._batch.after if last else offset + 1
        return message
