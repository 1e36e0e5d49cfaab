"""Processes an ordered group's messages with a handler: one piece of each queue at a time, in order.

If the handler raises, its queue stays at that message: the handler gets it again after a while, and the queue continues
when it is done, or a dead letter after its last attempt. Other queues continue meanwhile. Work ends as soon as the
queue is to move to another member.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from penstock.client.attempts import Attempts, retry_of
from penstock.client.handling import GiveBack, Handling, Work, is_ended
from penstock.client.jobs import AGAIN, Job, chosen_of
from penstock.client.positions import Batch
from penstock.client.pulling import Held, Intake
from penstock.client.unfinished import Flow
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from penstock.world import Clock, Rng

_log = logging.getLogger(__name__)


class Orderly(Handling):
    """The work of one handler in an ordered group."""

    def __init__(
        self,
        intake: Intake,
        bury: GiveBack,
        commit: Callable[[], Awaitable[None]],
        flow: Flow,
        clock: Clock,
        rng: Rng,
        attempts: Attempts,
        note: Callable[[Sequence[ReceivedMessage]], Awaitable[None]],
    ) -> None:
        """``bury``: makes a message a dead letter, durably. ``note``: stores the attempts for later holders of the
        queue."""
        super().__init__(intake, bury, commit, flow, clock, rng)
        self._attempts = attempts
        self._note = note
        self._size = 1

    async def run(self, work: Work, concurrency: int, size: int, stop_s: float) -> None:
        """As ``Handling.run``. ``concurrency``: maximum number of queues at a time."""
        self._size = size
        await super().run(work, concurrency, self._flow.messages, stop_s)

    def _fits(self, batch: Batch) -> bool:
        """Whether a queue has no batch in hand."""
        is_free = not batch.position.unfinished
        self._is_full = self._is_full or not is_free
        return is_free and super()._fits(batch)

    async def _perform(self, work: Work, job: Job, tasks: TaskGroup) -> None:
        left = job.messages
        while left:
            if job.void or job.position.waits or self._stopped.is_set():
                self._leave(job, left, is_done=False)
                if not job.void:
                    job.position.leave_off()
                return
            some, after_s, reason = left[: self._size], None, "the handler did not finish it"
            try:
                returned = await work(some)
                back = chosen_of(some, returned) if returned else ()
            except (Exception, self._cancelled) as error:
                if is_ended(error):
                    raise
                after_s, reason = retry_of(error)
                back = some
                _log.debug("the handler of %s failed", job.position.queue, exc_info=True)
            self._leave(job, [one for one in some if one not in back])
            left = left[len(some) :]
            if back:
                tried = [one.delivered(job.position.tried(one) - one.attempts) for one in back]
                tasks.start_soon(self._hold_up, job, tried, left, after_s, reason)
                return

    async def _hold_up(
        self,
        job: Job,
        tried: Sequence[ReceivedMessage],
        left: Sequence[ReceivedMessage],
        after_s: float | None,
        reason: str,
    ) -> None:
        """The queue stays at a message until it is tried again, or goes on behind a dead letter. ``left``: the messages
        behind those that were tried."""
        first, repetition, left = tried[0], job.repetition, [*tried, *left]
        await self._note(tried)
        wait_s = self._attempts.hold_up_s(first.attempts, after_s)
        if first.attempts >= self._attempts.max:
            wait_s = 0.0
            try:
                await self._give_back_one(first, None, reason)
            except Fenced:
                wait_s = 0.0  # its new holder has it, and the job is void
            except PenstockError as error:
                repetition += 1
                wait_s = AGAIN.wait_s(repetition, self._rng)
                _log.warning("%s: offset %d is tried again here: %s", first.queue, first.offset, error.message)
            else:
                self._leave(job, [first])
                left, repetition = left[1:], 0
        await self._pause(job, wait_s)
        if left:
            self._jobs.append(Job(job.position, job.unfinished, left, repetition))
            self._wake()

    async def _pause(self, job: Job, wait_s: float) -> None:
        """Waits, unless the queue is to go elsewhere or the work ends."""
        held = job.position
        assert isinstance(held, Held)

        async def until(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        with anyio.move_on_after(wait_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(until, held.left)
                await until(self._stopped)
