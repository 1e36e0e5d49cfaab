"""Turns outcomes into replies, in the order that they carry. No other module answers a request.

| outcome | answered when |
|---|---|
| ``Now`` | at once |
| ``AfterSync`` | this disk has the log up to its point |
| ``AfterQuorum`` | the log is committed up to its point |
| ``AfterRound`` | a round has proved besides that this node has led since |
| ``Parked`` | one of its wakers stirs, or its deadline passes |

The flusher alone calls ``reached``. Pure: it calls back, it never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.figures import Figures
from broker.kernel.handler import Handler
from broker.kernel.outcomes import AfterQuorum, AfterRound, AfterSync, Now, Outcome, Parked
from broker.net.parked import ParkedRequests
from broker.reads import FollowerReads
from broker.service import BrokerService
from broker.store_clock import StoreClock
from penstock.errors import PenstockError, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request, Result

NOT_HERE: Final = "this broker does not lead its log now"
_Answer = tuple[int, int, Result, OnResult, float]
"""The awaited log position, the number among all answers, the answer, its receiver, and the time of the request."""
Confirm = Callable[[Callable[[], None]], None]
"""Calls back when a majority has said, since this call, that this node leads; never where it does not lead any more."""


class Dispatch:
    """Requests of all sessions of a broker. ``on_unsynced`` is called when there may be something for the flusher
    to do, with whether a request waits for it and whether no other session is about to append."""

    def __init__(
        self,
        service: BrokerService | None,
        clock: StoreClock,
        on_unsynced: Callable[[bool, bool], None],
        parked: ParkedRequests | None = None,
        figures: Figures | None = None,
        asides: Mapping[type[Request], Handler] | None = None,
        reads: FollowerReads | None = None,
        confirm: Confirm | None = None,
    ) -> None:
        """``service``: None where another node leads. ``parked``: where requests are parked; the service looks at it.
        ``confirm``: None where no other node can lead.
        ``figures``: those of the process. ``asides``, and ``reads`` of this copy: handlers that need no service."""
        self._reads = reads
        self._asides = asides or {}
        self._figures = Figures() if figures is None else figures
        self._service = service
        self._clock = clock
        self._on_unsynced = on_unsynced
        self._after_sync: deque[_Answer] = deque()
        self._after_quorum: deque[_Answer] = deque()
        self._confirm = confirm
        self._after_round: deque[tuple[AfterRound, OnResult, float]] = deque()
        self._rounds_asked = 0  # how many of these the rounds that are asked for will answer
        self._answers = 0
        self._parked = ParkedRequests() if parked is None else parked
        self._waking = False
        self._is_timed = False  # whether ``_now`` and ``_now_ms`` are of this batch
        self._now = 0.0
        self._now_ms = 0
        self._closed: PenstockError | None = None
        self._broken: Exception | None = None

    @property
    def parked(self) -> int:
        """The number of requests that are waiting for messages or group changes."""
        return len(self._parked)

    @property
    def waits_for_disk(self) -> bool:
        """Whether a request waits for a sync, here or on another copy."""
        return bool(self._after_sync or self._after_quorum)

    def submit(self, request: Request, on_result: OnResult, session: int) -> None:
        """Carries a request out; ``on_result`` is called exactly once, unless the session is dropped first."""
        service = self._service
        if self._closed is not None or service is None:
            self._submit_aside(request, on_result, session)
            return
        if not self._is_timed:
            self._is_timed = True
            self._now, self._now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            outcome = service.handle(request, self._now, self._now_ms)
        except Exception as error:  # how much of it was done is unknown
            self._broken = error
            self.close(Unavailable("the broker met an unexpected error"))
            raise
        if isinstance(outcome, Now):
            on_result(outcome.result)
        elif isinstance(outcome, AfterSync):
            if outcome.point <= service.durable:
                on_result(outcome.result)
            else:
                self._answers += 1
                self._after_sync.append((outcome.point, self._answers, outcome.result, on_result, self._now))
        elif isinstance(outcome, AfterQuorum):
            if outcome.point <= service.committed:
                on_result(outcome.result)
            else:
                self._answers += 1
                self._after_quorum.append((outcome.point, self._answers, outcome.result, on_result, self._now))
        elif isinstance(outcome, AfterRound):
            if outcome.point > service.committed:  # who commits leads
                self._answers += 1
                self._after_quorum.append((outcome.point, self._answers, outcome.result, on_result, self._now))
            elif self._confirm is None:
                on_result(outcome.result)
            else:
                self._after_round.append((outcome, on_result, self._now))
        else:
            self._parked.park(outcome, on_result, session)

    def _submit_aside(self, request: Request, on_result: OnResult, session: int) -> None:
        """Answers, or parks, what a broker can do that does not lead."""
        outcome = self._aside(request) if self._service is None else None
        if outcome is None:
            on_result(self._closed or Unavailable(NOT_HERE))
        elif isinstance(outcome, Parked):
            self._parked.park(outcome, on_result, session)
        else:
            on_result(outcome.result)

    def _aside(self, request: Request) -> Outcome | None:
        handler = self._asides.get(type(request))
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            if handler is not None:
                return handler(request, now, now_ms)
            return None if self._reads is None else self._reads.handle(request, now, now_ms)
        except PenstockError as error:
            return Now(error.as_result())

    def refuse(self, error: PenstockError) -> None:
        """Sets the error with which a broker that does not lead answers requests."""
        if self._service is None:
            self._closed = error

    def end_batch(self, is_whole: bool = False) -> None:
        """A session has handed over its batch: the flusher may begin, and readers that wait for these messages wake.
        ``is_whole``: no further batch is about to come. All requests of a batch had one time."""
        self._on_unsynced(self.waits_for_disk, is_whole)
        self._ask_round()
        self._wake()

    def _ask_round(self) -> None:
        count = len(self._after_round) - self._rounds_asked
        if self._confirm is not None and count:
            self._rounds_asked += count
            self._confirm(partial(self._confirmed, count))

    def _confirmed(self, count: int) -> None:
        """This node has led since the oldest ``count`` of those that wait for it have asked; none is there any more
        where it has stepped down meanwhile."""
        count = min(count, len(self._after_round))
        self._rounds_asked -= count
        now = self._clock.monotonic()
        for _ in range(count):
            outcome, on_result, asked = self._after_round.popleft()
            self._figures.answered(now - asked)
            on_result(_of_now(outcome))
        self._wake()

    def reached(self, durable: int, committed: int) -> None:
        """This disk has the log up to ``durable``, and it is committed up to ``committed``: answers what waited for
        that, in the order in which it was asked, and wakes the readers."""
        synced, agreed = self._after_sync, self._after_quorum
        now = self._clock.monotonic() if synced or agreed else 0.0
        while True:
            is_synced = bool(synced) and synced[0][0] <= durable
            is_agreed = bool(agreed) and agreed[0][0] <= committed
            if is_synced and not (is_agreed and agreed[0][1] < synced[0][1]):
                _, _, result, on_result, asked = synced.popleft()
            elif is_agreed:
                _, _, result, on_result, asked = agreed.popleft()
            else:
                break
            self._figures.answered(now - asked)
            on_result(result)
        self._wake()

    def _wake(self) -> None:
        """Wakes until nothing stirs any more; a callback that submits again does not nest."""
        if self._waking:
            return
        self._waking = True
        try:
            while (source := self._service or self._reads) is not None and (wakers := source.take_wakers()):
                self._parked.wake(wakers)
        finally:
            self._waking = False
            self._is_timed = False  # also what a callback has submitted was of the batch that ends here

    def tick(self) -> None:
        """Handles the passing of time. Raises the error of a request that has failed: the broker ends with it, even if
        other code has caught it."""
        now = self._clock.monotonic()
        if self._broken is not None:
            raise self._broken
        if self._closed is None and self._service is not None:
            self._service.tick(now, self._clock.wall_ms(), self._clock.age_ms())
        self._parked.expire(now)
        self.end_batch()

    def hold(self, session: int) -> None:
        """Holds the parked requests of a session until it is released."""
        self._parked.hold(session)

    def release(self, session: int) -> None:
        """Answers parked requests of the session again."""
        self._parked.release(session)
        self._wake()

    def drop(self, session: int) -> None:
        """A session is gone; its parked requests are forgotten."""
        self._parked.drop_session(session)

    def close(self, error: PenstockError) -> None:
        """Carries out nothing any more, and answers every request with this error; one that waits for a disk with an
        error that says that its outcome is unknown. Ends with the process, and so do parked requests."""
        self._closed, self._reads = error, None
        unknown = type(error)(error.message, hint=error.hint).with_fate(True)
        for waiting in (self._after_sync, self._after_quorum):
            while waiting:
                waiting.popleft()[3](unknown)
        self._rounds_asked = 0
        while self._after_round:
            self._after_round.popleft()[1](error)

    def step_down(self, error: PenstockError) -> None:
        """The same for a process that lives on without leading this log: parked requests are answered too, and the
        service is dropped."""
        self._service = None
        self.close(error)
        self._parked.fail_all(error)


def _of_now(outcome: AfterRound) -> Result:
    try:
        return outcome.result if outcome.again is None else outcome.again()
    except PenstockError as error:
        return error.as_result()
