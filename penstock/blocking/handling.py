"""Processes a blocking consumer's messages with a program's handler, in this thread or in separate threads.

The rules are those of penstock/client/handling.py: if a handler raises, its message is returned to the broker; if the
broker cannot store it, the handler gets it again; and the group passes messages before the lowest unfinished one. Only
the handler runs in other threads; with a concurrency of 1 it runs in this one, with heartbeats between messages.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any, Final

from penstock.blocking.pulls import WAIT_S_MAX, Pulls
from penstock.client.attempts import retry_of
from penstock.client.jobs import AGAIN, COMMIT_S, Job, chosen_of
from penstock.client.positions import Batch, Position
from penstock.client.unfinished import Flow, size_of
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from penstock.world import Clock, Rng, worker_threads

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.02
"""Seconds between two looks for messages and heartbeats while handlers run."""

Work = Callable[[Sequence[ReceivedMessage]], Any]
"""Processes messages; those that it returns are not done."""
GiveBack = Callable[[ReceivedMessage, float | None, str], object]


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that a handler's work makes to its consumer: return a message, commit finished ones, send heartbeats,
    and note how often messages of an ordered queue were tried."""

    give_back: GiveBack
    commit: Callable[[], None]
    tend: Callable[[], None]
    note: Callable[[Sequence[ReceivedMessage]], None] = lambda messages: None


class Handling:
    """The work of one handler, as long as ``run`` runs."""

    def __init__(self, pulls: Pulls, calls: Calls, flow: Flow, clock: Clock, rng: Rng) -> None:
        self._pulls = pulls
        self._calls = calls
        self._flow = flow
        self._clock = clock
        self._rng = rng
        self._jobs: deque[Job] = deque()
        self._again: list[tuple[float, Job]] = []
        self._running: dict[Future[Any], Job] = {}
        self._positions: set[Position] = set()
        self._messages = 0
        self._bytes = 0
        self._commit_at = 0.0
        self._stopped = False

    def stop(self) -> None:
        """Takes no more messages; ``run`` returns when the handler has finished its current ones."""
        self._stopped = True

    def run(self, work: Work, concurrency: int, size: int, stop_s: float) -> None:
        """As penstock/client/handling.py."""
        pool = worker_threads(concurrency) if concurrency > 1 else None
        self._commit_at = self._clock.monotonic() + COMMIT_S
        try:
            while not self._stopped:
                self._start(work, concurrency, pool)
                self._take(size, concurrency)
                self._look(LOOK_S if len(self._running) >= concurrency else 0.0)
                self._commit()
            ends = self._clock.monotonic() + stop_s
            while self._running and self._clock.monotonic() < ends:
                self._look(LOOK_S)
                self._calls.tend()
        finally:
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
            for position in self._positions:
                position.leave_off()

    # -- from the queues to the handler

    def _take(self, size: int, concurrency: int) -> None:
        """Takes a batch if one is there; waits for it if there is nothing else to do."""
        if self._again or self._running:
            wait_s = LOOK_S if len(self._running) < concurrency else LOOK_S / 10
        else:
            wait_s = WAIT_S_MAX
        if self._jobs or self._stopped:
            wait_s = LOOK_S / 10
        batch = self._pulls.take(wait_s, self._calls.tend, self._fits)
        if batch is None:
            return
        self._positions.add(batch.position)
        unfinished, messages = batch.hand_over(), batch.messages
        self._messages += len(messages)
        self._bytes += size_of(messages)
        for at in range(0, len(messages), size):
            self._jobs.append(Job(batch.position, unfinished, messages[at : at + size]))

    def _fits(self, batch: Batch) -> bool:
        return self._flow.fits(self._messages, self._bytes, batch.messages, batch.position.unfinished, batch.after)

    def _leave(self, job: Job, messages: Sequence[ReceivedMessage], *, is_done: bool = True) -> None:
        if is_done:
            for message in messages:
                job.unfinished.finish(message.offset)
        self._messages -= len(messages)
        self._bytes -= size_of(messages)

    # -- the handler

    def _start(self, work: Work, concurrency: int, pool: Executor | None) -> None:
        now = self._clock.monotonic()
        due = [job for at, job in self._again if at <= now]
        self._again = [(at, job) for at, job in self._again if at > now]
        self._jobs.extendleft(due)
        while self._jobs and len(self._running) < concurrency and not self._stopped:
            job = self._jobs.popleft()
            if self._is_over(job):
                continue
            job.position.take_up()
            if pool is not None:
                self._running[pool.submit(work, job.messages)] = job
            else:
                self._run_here(work, job)
                return  # the group is looked after before the next one

    def _is_over(self, job: Job) -> bool:
        """Whether a job is not to be begun, for its queue has gone or goes elsewhere."""
        if job.void:
            self._leave(job, job.messages, is_done=False)
        return job.void

    def _run_here(self, work: Work, job: Job) -> None:
        try:
            returned = work(job.messages)
        except Exception as error:
            self._failed(job, error)
        else:
            self._ended(job, returned)
        finally:
            job.position.put_down()

    def _look(self, wait_s: float) -> None:
        """Takes in the messages that handlers have finished; waits for one."""
        if not self._running:
            return
        for future in wait(self._running, wait_s, FIRST_COMPLETED).done:
            job = self._running.pop(future)
            job.position.put_down()
            error = future.exception()
            if error is None:
                self._ended(job, future.result())
            elif isinstance(error, Exception):
                self._failed(job, error)
            else:
                raise error

    def _ended(self, job: Job, returned: object) -> None:
        back = chosen_of(job.messages, returned) if returned else ()
        self._leave(job, [one for one in job.messages if one not in back])
        if back:
            self._give_back(job, back, None, "the handler did not finish it")

    def _failed(self, job: Job, error: Exception) -> None:
        _log.debug("the handler of %s failed", job.position.queue, exc_info=error)
        self._give_back(job, job.messages, *retry_of(error))

    def _give_back(self, job: Job, messages: Sequence[ReceivedMessage], after_s: float | None, reason: str) -> None:
        left: list[ReceivedMessage] = []
        for message in messages:
            try:
                self._calls.give_back(message, after_s, reason)
            except Fenced:
                self._leave(job, [message], is_done=False)
            except PenstockError as error:
                left.append(message)
                _log.warning("%s: offset %d is tried again here: %s", message.queue, message.offset, error.message)
            else:
                self._leave(job, [message])
        if left:
            due = self._clock.monotonic() + AGAIN.wait_s(job.repetition + 1, self._rng)
            self._again.append((due, Job(job.position, job.unfinished, left, job.repetition + 1)))

    def _commit(self) -> None:
        if self._clock.monotonic() >= self._commit_at:
            try:
                self._calls.commit()
            except PenstockError as error:
                _log.debug("the next commit stores it: %s", error)
            self._commit_at = self._clock.monotonic() + COMMIT_S
