"""Processes an ordered group's messages with a blocking handler: one piece of each queue at a time, in order.

The rules are those of penstock/client/orderly.py. With several threads, each works on another queue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.blocking.handling import Calls, Handling, Work
from penstock.blocking.pulls import Pulls
from penstock.client.attempts import Attempts, retry_of
from penstock.client.jobs import AGAIN, Job, chosen_of
from penstock.client.positions import Batch, Position
from penstock.client.unfinished import Flow
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from penstock.world import Clock, Rng

_log = logging.getLogger(__name__)


class Orderly(Handling):
    """The work of one handler in an ordered group. ``calls.give_back`` makes a message a dead letter, durably."""

    def __init__(self, pulls: Pulls, calls: Calls, flow: Flow, clock: Clock, rng: Rng, attempts: Attempts) -> None:
        super().__init__(pulls, calls, flow, clock, rng)
        self._attempts = attempts
        self._size = 1
        self._behind: dict[Position, Sequence[ReceivedMessage]] = {}  # the messages after the piece in hand

    def run(self, work: Work, concurrency: int, size: int, stop_s: float) -> None:
        """As ``Handling.run``. ``concurrency``: maximum number of queues at a time."""
        self._size = size
        super().run(work, concurrency, self._flow.messages, stop_s)

    def _fits(self, batch: Batch) -> bool:
        """Whether a queue has no batch in hand."""
        return not batch.position.unfinished and super()._fits(batch)

    def _is_over(self, job: Job) -> bool:
        messages = [*job.messages, *self._behind.pop(job.position, ())]
        if job.void or job.position.waits:
            self._leave(job, messages, is_done=False)
            if not job.void:
                job.position.leave_off()
            return True
        job.messages, self._behind[job.position] = messages[: self._size], messages[self._size :]
        return False

    def _ended(self, job: Job, returned: object) -> None:
        back = chosen_of(job.messages, returned) if returned else ()
        self._go_on(job, back, None, "the handler did not finish it")

    def _failed(self, job: Job, error: Exception) -> None:
        _log.debug("the handler of %s failed", job.position.queue, exc_info=error)
        self._go_on(job, job.messages, *retry_of(error))

    def _go_on(self, job: Job, back: Sequence[ReceivedMessage], after_s: float | None, reason: str) -> None:
        """The queue continues after finished messages, or waits at one for its retry or until it is a dead letter."""
        self._leave(job, [one for one in job.messages if one not in back])
        tried = [one.delivered(job.position.tried(one) - one.attempts) for one in back]
        left = [*tried, *self._behind.pop(job.position, ())]
        if tried:
            self._calls.note(tried)
        if not left:
            return
        wait_s, repetition = 0.0, job.repetition
        if back:
            first = left[0]
            wait_s = self._attempts.hold_up_s(first.attempts, after_s)
            if first.attempts >= self._attempts.max:
                wait_s, repetition = self._bury(job, first, reason)
                left = left if wait_s else left[1:]
        if left:
            self._again.append((self._clock.monotonic() + wait_s, Job(job.position, job.unfinished, left, repetition)))

    def _bury(self, job: Job, message: ReceivedMessage, reason: str) -> tuple[float, int]:
        """Makes a message a dead letter; or else, how long to wait before it is tried here once more."""
        try:
            self._calls.give_back(message, None, reason)
        except Fenced:
            self._leave(job, [message], is_done=False)  # its new holder has it
        except PenstockError as error:
            _log.warning("%s: offset %d is tried again here: %s", message.queue, message.offset, error.message)
            return max(AGAIN.wait_s(job.repetition + 1, self._rng), 0.001), job.repetition + 1
        else:
            self._leave(job, [message])
        return 0.0, 0
