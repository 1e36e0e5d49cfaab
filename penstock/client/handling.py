"""Processes a consumer's messages with a program's handler: several at a time, each finished or returned.

If a handler raises, its message is returned to the broker; if the broker cannot store it, the handler gets it again
after a while. The group passes messages before the lowest unfinished one. Messages that are unfinished when the work
ends are delivered again.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import anyio
from anyio.abc import TaskGroup

from penstock.client.attempts import Failed, retry_of
from penstock.client.jobs import AGAIN, COMMIT_S, Job, chosen_of
from penstock.client.positions import Batch, Position
from penstock.client.unfinished import Flow, size_of
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from penstock.world import Clock, Rng

_log = logging.getLogger(__name__)

LAST_COMMIT_S: Final = 2.0
"""Seconds that the last commit may take when the work is cancelled."""
TURN_S: Final = 0.01
"""Seconds without a pause after which a handler lets other tasks run."""

Work = Callable[[Sequence[ReceivedMessage]], Awaitable[Any]]
"""Works messages off; those that it returns are not done."""


class Source(Protocol):
    """The source of batches."""

    async def take(self, fits: Callable[[Batch], bool] | None = None) -> Batch | None:
        """The next batch that fits; ``None`` at the end."""
        ...

    def stir(self) -> None:
        """Has ``take`` look again at what did not fit."""
        ...


GiveBack = Callable[[ReceivedMessage, float | None, str], Awaitable[object]]


GiveBackAll = Callable[[Sequence[Failed]], Awaitable[Sequence[PenstockError | None]]]
"""Returns messages to the broker; the error of each, ``None`` if durable."""


class _FailedJob(NamedTuple):
    job: Job
    after_s: float | None
    reason: str


def is_ended(error: BaseException) -> bool:
    """Whether an error of the handler is the end of its work, not a failure: cancelled by a scope around it, and not
    because it awaited a task that was cancelled."""
    return not isinstance(error, Exception) and anyio.current_effective_deadline() <= anyio.current_time()


class Handling:
    """The work of one handler, as long as ``run`` runs."""

    def __init__(
        self,
        intake: Source,
        give_back: GiveBack,
        commit: Callable[[], Awaitable[None]],
        flow: Flow,
        clock: Clock,
        rng: Rng,
        give_back_all: GiveBackAll | None = None,
    ) -> None:
        """``give_back``: has a message come again, durably; ``give_back_all``: several, if there is a cheaper way.
        ``commit``: stores how far the group has come."""
        self._give_back_all = give_back_all
        self._intake = intake
        self._give_back_one = give_back
        self._commit = commit
        self._flow = flow
        self._clock = clock
        self._rng = rng
        self._jobs: deque[Job] = deque()
        self._positions: set[Position] = set()
        self._messages = 0
        self._bytes = 0
        self._is_full = False
        self._idle: list[anyio.Event] = []  # of workers that wait for a job, or for the end
        self._is_waking = False  # one was woken, and has not begun yet
        self._cancelled: type[BaseException] = Exception  # the exception of the event loop for a cancelled task
        self._stopped = anyio.Event()
        self._feeding = anyio.CancelScope()
        self._failure: PenstockError | None = None
        self._failed: list[_FailedJob] = []  # to be given back
        self._is_returning = False

    def stop(self) -> None:
        """Takes no more messages; ``run`` returns when the handler has finished those that it is at work on."""
        self._stopped.set()
        self._feeding.cancel()
        while self._idle:
            self._idle.pop().set()

    async def run(self, work: Work, concurrency: int, size: int, stop_s: float) -> None:
        """Hands messages to ``work``, ``size`` at a time at most, until ``stop``; then it has ``stop_s`` seconds.
        Raises what ended the reading. Commits the last finished messages, unless the work was cancelled."""
        self._cancelled = anyio.get_cancelled_exc_class()
        try:
            async with anyio.create_task_group() as all_tasks:
                all_tasks.start_soon(self._keep_committing)
                with anyio.CancelScope() as patience:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(min(concurrency, self._flow.messages)):
                            tasks.start_soon(self._work_off, work, tasks)
                        with self._feeding:
                            await self._feed(size)
                        patience.deadline = anyio.current_time() + stop_s
                all_tasks.cancel_scope.cancel()
        except BaseException:
            with anyio.move_on_after(LAST_COMMIT_S, shield=True), contextlib.suppress(PenstockError):
                await self._commit()
            raise
        finally:
            self._drop_rest()
        if self._failure is not None:
            raise self._failure

    # -- from the queues to the handler

    async def _feed(self, size: int) -> None:
        while not self._stopped.is_set():
            batch = None
            try:
                batch = await self._intake.take(self._fits)
            except PenstockError as error:
                self._failure = error
            if batch is None:
                self.stop()
                return
            self._positions.add(batch.position)
            unfinished, messages = batch.hand_over(), batch.messages
            self._messages += len(messages)
            self._bytes += size_of(messages)
            for at in range(0, len(messages), size):
                self._jobs.append(Job(batch.position, unfinished, messages[at : at + size]))
            self._wake()

    def _fits(self, batch: Batch) -> bool:
        """Whether a batch may be taken now; if not, it is asked again when something is finished."""
        fits = self._flow.fits(self._messages, self._bytes, batch.messages, batch.position.unfinished, batch.after)
        self._is_full = self._is_full or not fits
        return fits

    def _leave(self, job: Job, messages: Sequence[ReceivedMessage], *, is_done: bool = True) -> None:
        """Messages are done or given back; or else their queue went elsewhere."""
        if is_done:
            for message in messages:
                job.unfinished.finish(message.offset)
        self._messages -= len(messages)
        self._bytes -= size_of(messages)
        if self._is_full:
            self._is_full = False
            self._intake.stir()

    # -- the handler

    def _wake(self) -> None:
        """A worker that waits begins; if there is more than one job, it wakes the next one: few jobs, and those that
        are done at once, wake few workers."""
        if self._idle and not self._is_waking:
            self._is_waking = True
            self._idle.pop().set()

    async def _work_off(self, work: Work, tasks: TaskGroup) -> None:
        turn_ends = self._clock.monotonic() + TURN_S
        while not self._stopped.is_set():  # what was not begun is left to others
            if not self._jobs:
                self._idle.append(job_or_end := anyio.Event())
                await job_or_end.wait()
                self._is_waking = False
                continue
            job = self._jobs.popleft()
            if self._jobs:
                self._wake()
            if job.void:
                self._leave(job, job.messages, is_done=False)
                continue
            job.position.take_up()
            try:
                await self._perform(work, job, tasks)
            finally:
                job.position.put_down()
            if self._clock.monotonic() > turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self._clock.monotonic() + TURN_S

    async def _perform(self, work: Work, job: Job, tasks: TaskGroup) -> None:
        try:
            returned = await work(job.messages)
        except (Exception, self._cancelled) as error:
            if is_ended(error):
                raise
            after_s, reason = retry_of(error)
            back = job.messages
            _log.debug("the handler of %s failed", job.position.queue, exc_info=True)
        else:
            if not returned:
                self._leave(job, job.messages)
                return
            after_s, reason, back = None, "the handler did not finish it", chosen_of(job.messages, returned)
        rest = job.messages
        if len(back) < len(rest):
            given_back = frozenset(back)
            self._leave(job, [one for one in job.messages if one not in given_back])
            rest = [one for one in job.messages if one in given_back]
        self._failed.append(_FailedJob(Job(job.position, job.unfinished, rest, job.repetition), after_s, reason))
        if not self._is_returning:
            self._is_returning = True
            tasks.start_soon(self._return_all, tasks)

    async def _return_all(self, tasks: TaskGroup) -> None:
        """Gives back failed messages, as many as there are at a time; what the broker cannot take the handler has
        again."""
        while self._failed:
            some, self._failed = self._failed, []
            given = [Failed(one, failed.after_s, failed.reason) for failed in some for one in failed.job.messages]
            errors = iter(await self._give_back(given))
            for failed in some:
                job, left = failed.job, list[ReceivedMessage]()
                for message in job.messages:
                    error = next(errors)
                    if error is None:
                        self._leave(job, [message])
                    elif isinstance(error, Fenced):
                        self._leave(job, [message], is_done=False)  # its new holder has it
                    else:
                        left.append(message)
                        told = message.queue, message.offset, error.message
                        _log.warning("%s: offset %d is tried again here: %s", *told)
                if left:
                    tasks.start_soon(self._again, Job(job.position, job.unfinished, left, job.repetition + 1))
        self._is_returning = False

    async def _give_back(self, failed: Sequence[Failed]) -> Sequence[PenstockError | None]:
        """The outcome of each."""
        if self._give_back_all is not None:
            return await self._give_back_all(failed)
        errors: list[PenstockError | None] = [None] * len(failed)

        async def give_back(at: int, one: Failed) -> None:
            try:
                await self._give_back_one(*one)
            except PenstockError as error:
                errors[at] = error

        async with anyio.create_task_group() as tasks:
            for at, one in enumerate(failed):
                tasks.start_soon(give_back, at, one)
        return errors

    async def _again(self, job: Job) -> None:
        with anyio.move_on_after(AGAIN.wait_s(job.repetition, self._rng)):
            await self._stopped.wait()
        self._jobs.append(job)
        self._wake()

    # -- commits

    async def _keep_committing(self) -> None:
        while True:
            await anyio.sleep(COMMIT_S)
            with contextlib.suppress(PenstockError):  # the next one stores it
                await self._commit()

    def _drop_rest(self) -> None:
        """Drops unfinished messages; they are read again, here or elsewhere."""
        for position in self._positions:
            position.leave_off()
