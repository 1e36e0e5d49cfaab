"""Reads queues ahead of the program that takes the messages: one long poll per queue, which brings several batches.

Consumer and Reader share it. ``Intake`` keeps the pulling tasks and the batches that came. The next pull of a queue
begins when the first batch of the last one was taken, so that at most two pulls per queue are in memory. A queue that
is far behind is pulled from another copy than the leader's, which keeps its memory and time for new messages.
Invariants: batches of one queue are handed out in order, each once; after ``drop`` or ``begin`` nothing pulled before
it is handed out any more.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio

from penstock.client.arguments import Beginning, Place, time_ms
from penstock.client.following import FollowingLink
from penstock.client.positions import UNSET, Batch, Position, PullLimits, place_offset
from penstock.client.retry import BackOff
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import ask
from penstock.errors import NotAllowed, OffsetOutOfRange, PenstockError, QueueNotFound
from penstock.protocol.link import Link
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import BoundsReply, OffsetReply, Pulled, QueryBounds, SeekTime
from penstock.protocol.requests.topics import Bounds
from penstock.world import Rng

FAR_BEHIND: Final = 10_000
"""Messages behind the end of a queue, from which on a copy is asked and not the leader."""
COPY_S: Final = 3.0
"""A copy answers within this time, or the leader is asked."""
NO_COPY_S: Final = 30.0
"""Time for which the leader is asked after a copy could not serve."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class Held(Position):
    """A position that a task pulls from: ``taken`` is set when the first batch of its last pull was taken, ``resumed``
    when it is paused no more, ``left`` when it is given up or about to be, ``idle`` when no work is under way there.
    ``not_before``: nothing is pulled before that time of the event loop. ``behind``: messages that the last pull has
    left. ``copies_from``: before that time no copy is asked."""

    link: Link
    taken: anyio.Event = field(default_factory=anyio.Event)
    resumed: anyio.Event = field(default_factory=anyio.Event)
    left: anyio.Event = field(default_factory=anyio.Event)
    idle: anyio.Event = field(default_factory=anyio.Event)
    not_before: float = 0.0
    behind: int = 0
    copies_from: float = 0.0
    scope: anyio.CancelScope | None = None

    def begin(self, offset: int) -> None:
        Position.begin(self, offset)
        if self.scope is not None:
            self.scope.cancel()

    def go_by(self, link: Link) -> None:
        """The next messages are pulled over another link."""
        if link is not self.link:
            self.link = link
            if self.scope is not None:
                self.scope.cancel()

    def leave(self) -> None:
        """Stops handing out: the queue goes to another member."""
        self.leaving = True
        self.left.set()
        if self.scope is not None:
            self.scope.cancel()

    def put_down(self) -> None:
        Position.put_down(self)
        if not self.hands:
            self.idle.set()

    def hold_up_for(self, offset: int, wait_s: float) -> None:
        """Holds the queue back for this long; then this message and the following ones are handed out."""
        self.hold_up(offset)
        self.not_before = anyio.current_time() + wait_s
        if self.scope is not None:
            self.scope.cancel()

    async def wait_idle(self) -> None:
        """Waits until the program has no work under way."""
        while self.hands:
            if self.idle.is_set():
                self.idle = anyio.Event()
            await self.idle.wait()

    def note_behind(self, messages: int) -> None:
        """Notes the number of messages behind the last pull."""
        self.behind = messages

    def ask_no_copy_until(self, time: float) -> None:
        """Notes that a copy could not serve."""
        self.copies_from = time

    def pause(self) -> None:
        """Stops pulling and handing out until ``resume``."""
        if not self.paused:
            self.resumed = anyio.Event()
            Position.pause(self)
            if self.scope is not None:
                self.scope.cancel()

    def resume(self) -> None:
        self.paused = False
        self.resumed.set()


class Intake:
    """Pulls the queues that it is given and hands out their messages. With ``ends``, the end of all queues is the end;
    else it waits for queues to be given, and asks for one whose topic was deleted until there is one again."""

    def __init__(self, tasks: TaskScope, limits: PullLimits, rng: Rng, *, ends: bool = False) -> None:
        self._ends = ends
        self._tasks = tasks
        self._limits = limits
        self._rng = rng
        self._back_off = BackOff()
        self._turn = -1  # which of the copies it asks; drawn when it asks one
        self._held: set[Held] = set()
        self._worked: dict[MessageQueue, Held] = {}  # ordered queues that went while the program was at work there
        self._ready: deque[tuple[Held, Batch]] = deque()
        self._changed = anyio.Event()
        self._failure: PenstockError | None = None
        self._in_hand: Held | None = None

    # -- the taker's side

    async def next(self) -> Batch | None:
        """As ``take``, for a program that works on one batch at a time: it is done with the last one."""
        self.put_down()
        batch = await self.take()
        if batch is not None and isinstance(batch.position, Held):
            self._in_hand = batch.position
            self._in_hand.take_up()
        return batch

    def put_down(self) -> None:
        """The program is done with the batch in its hands."""
        if self._in_hand is not None:
            self._in_hand.put_down()
            self._in_hand = None

    async def take(self, fits: Callable[[Batch], bool] | None = None) -> Batch | None:
        """The next batch; ``None`` when every queue was read to its ``stop_at``. Raises what ended the pulling.
        ``fits``: which ones are wanted now; ``stir`` has them looked at again."""
        while True:
            batch = self.take_ready(fits)
            if batch is not None:
                if batch.is_first:
                    await anyio.lowlevel.cancel_shielded_checkpoint()  # the next pull leaves before the program goes on
                if batch.void:
                    continue
                return batch
            if self._failure is not None:
                raise self._failure
            if self._ends and not self._held:
                return None
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()

    def take_ready(self, fits: Callable[[Batch], bool] | None = None) -> Batch | None:
        """A batch that is in store, or ``None``."""
        left: deque[tuple[Held, Batch]] = deque()
        found = None
        while self._ready and found is None:
            held, batch = self._ready.popleft()
            if batch.void:
                continue
            if held.waits or (fits is not None and (any([held is one for one, _batch in left]) or not fits(batch))):
                left.append((held, batch))  # and so are those behind it
                continue
            if batch.is_first:
                held.taken.set()
            found = batch
        if left:
            self._ready.extendleft(reversed(left))
        return found

    def stir(self) -> None:
        """Has ``take`` look at the batches in store again."""
        self._changed.set()

    # -- queues

    def pull(self, held: Held) -> None:
        """Begins to read a queue from ``held.offset``."""
        assert held.offset != UNSET
        self._held.add(held)
        self._tasks.start_soon(self._keep_pulling, held)

    def go_on(self, held: Held) -> None:
        """Reads a queue further that was read to its end and has been sought since."""
        if held not in self._held and held.live:
            self.pull(held)

    def drop(self, held: Held) -> None:
        """Gives a queue up: nothing of it is handed out from now on."""
        held.live = False
        held.left.set()
        if held.hands and held.lease is not None:
            self._worked[held.queue] = held
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
        if (before := self._worked.get(held.queue)) is not None:
            await before.wait_idle()  # one that comes back
        while held.live and not held.leaving and not held.finished:
            with anyio.CancelScope() as held.scope:  # left by seek and drop
                try:
                    await self._pull_once(held)
                    failures = 0
                except PenstockError as error:
                    if not (error.retryable or (not self._ends and isinstance(error, QueueNotFound))):
                        self.fail(error)
                        break
                    if isinstance(error, NotAllowed) and not failures:
                        _log.warning("%s waits: %s", held.queue, error)
                    failures += 1
                    await anyio.sleep(self._back_off.wait_s(failures, self._rng))
        self._held.discard(held)
        self._changed.set()

    async def _pull_once(self, held: Held) -> None:
        if held.paused:
            await held.resumed.wait()
        if (wait_s := held.not_before - anyio.current_time()) > 0:
            await anyio.sleep(wait_s)
        version = held.version
        try:
            pulled = await self._pulled(held)
        except OffsetOutOfRange:
            bounds = (await bounds_of(held.link, [held.queue.name]))[0]
            if held.version == version and (gone := held.pass_gap(bounds)):
                _log.warning("%s: %d messages before offset %d are gone", held.queue, gone, bounds.min)
            return
        if held.version != version:
            return  # sought elsewhere while the answer was on its way
        held.note_behind(pulled.end - pulled.next)
        batches = held.advance(pulled, self._limits.batch_max)
        if batches:
            held.taken = anyio.Event()
            self._ready.extend([(held, batch) for batch in batches])
            self._changed.set()
            await held.taken.wait()

    async def _pulled(self, held: Held) -> Pulled:
        """Pulls from a copy if the queue is far behind, and from the leader if the copy cannot serve."""
        request = self._limits.pull(held, len(self._held))
        link, now = held.link, anyio.current_time()
        if held.behind >= FAR_BEHIND and now >= held.copies_from and isinstance(link, FollowingLink):
            self._turn = self._turn if self._turn >= 0 else self._rng.getrandbits(16)
            copy = link.to_copy(self._turn)
            if copy is not None:
                with contextlib.suppress(PenstockError):
                    pulled = await ask(copy, replace(request, wait_s=0.0), Pulled, COPY_S)
                    if pulled.next > request.offset:
                        return pulled
                held.ask_no_copy_until(now + NO_COPY_S)
        return await ask(link, request, Pulled)


async def bounds_of(link: Link, queues: Iterable[str]) -> tuple[Bounds, ...]:
    """The bounds of queues, in the order asked."""
    return (await ask(link, QueryBounds(tuple(queues)), BoundsReply)).bounds


async def offset_at(link: Link, queue: str, place: Place) -> int:
    """The offset that a person means by a place. Raises ``OffsetOutOfRange``."""
    if isinstance(place, datetime):
        return await offset_since(link, queue, time_ms("a place", place))
    return place_offset((await bounds_of(link, [queue]))[0], place)


async def offset_of(link: Link, bounds: Bounds, start: Beginning) -> int:
    """The offset at which reading begins in a queue with these bounds."""
    if isinstance(start, int):
        return await offset_since(link, bounds.queue, start)
    return place_offset(bounds, start)


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

    async def __anext__(self) -> ReceivedMessage:
        if self._batch is not None and self._batch.position.waits and not self._batch.void:
            self._batch.position.rewind()
        while self._batch is None or self._batch.void or self._at == len(self._batch.messages):
            self._batch, self._at = await self._intake.next(), 0
            if self._batch is None:
                raise StopAsyncIteration
        message = self._batch.messages[self._at]
        self._at += 1
        last = self._at == len(self._batch.messages)
        self._batch.position.handed_out = self._batch.after if last else message.offset + 1
        return message
