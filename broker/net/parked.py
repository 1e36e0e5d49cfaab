"""Requests that wait for messages in a queue or for a change of a group: plain records without a task or event of their
own.

A waker or the deadline finds a request. A request of a *held* session, whose peer has much to read first, waits on and
is asked again when the hold ends. So one message does not answer very many requests at once. Pure: ``now`` is an
argument.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from broker.kernel.deadlines import Deadline, DeadlineHeap
from broker.kernel.outcomes import Parked
from penstock.errors import PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Result


@mypyc_attr(acyclic=True)
class Waiting(Deadline):
    """One parked request; ``answered`` ones are skipped wherever they still stand. An idle device has one of these for
    as long as it is connected, so it holds no more than it needs, and the garbage collector does not look at it
    (compiled): its holder drops the reference itself."""

    __slots__ = ("_wakers", "answered", "on_result", "retry", "session")

    def __init__(self, outcome: Parked, on_result: OnResult, session: int) -> None:
        super().__init__(outcome.deadline)
        self._wakers: tuple[str, ...] | str = outcome.wakers if len(outcome.wakers) != 1 else outcome.wakers[0]
        self.retry: Callable[[bool], Result | None] = outcome.retry
        self.on_result = on_result
        self.session = session
        self.answered = False

    @property
    def wakers(self) -> tuple[str, ...]:
        """The wakers that it waits for."""
        return (self._wakers,) if isinstance(self._wakers, str) else self._wakers


class ParkedRequests:
    """All parked requests of a broker."""

    def __init__(self) -> None:
        self._by_waker: dict[str, Waiting | dict[Waiting, None]] = {}  # nearly all have one
        self._by_session: dict[int, dict[Waiting, None]] = {}
        self._held: dict[int, dict[Waiting, bool]] = {}  # session -> stirred meanwhile, and if it is the last
        self._deadlines: DeadlineHeap[Waiting] = DeadlineHeap()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_awaited(self, waker: str) -> bool:
        """Whether a request waits for this."""
        return waker in self._by_waker

    def park(self, outcome: Parked, on_result: OnResult, session: int) -> None:
        """Keeps a request until one of its wakers stirs or its deadline passes."""
        waiting = Waiting(outcome, on_result, session)
        for waker in outcome.wakers:
            found = self._by_waker.setdefault(waker, waiting)
            if isinstance(found, dict):
                found[waiting] = None
            elif found is not waiting:
                self._by_waker[waker] = {found: None, waiting: None}
        self._by_session.setdefault(session, {})[waiting] = None
        self._count += 1
        self._deadlines.arm(waiting)

    def wake(self, wakers: list[str]) -> None:
        """Asks the requests of these wakers again, and answers those that have something to say."""
        for waker in wakers:
            found = self._by_waker.get(waker)
            if isinstance(found, Waiting):
                self._try(found, last=False)
            elif found is not None:
                for waiting in list(found):
                    self._try(waiting, last=False)

    def expire(self, now: float) -> None:
        """Answers the requests whose deadline has passed."""
        for waiting in self._deadlines.due(now):
            self._try(waiting, last=True)

    def hold(self, session: int) -> None:
        """The requests of this session wait on, whatever stirs, until they are released."""
        self._held.setdefault(session, {})

    def release(self, session: int) -> None:
        """Answers requests whose wakers have stirred meanwhile, in order, until the session is held again."""
        stirred = self._held.pop(session, {})
        for waiting, last in stirred.items():
            self._try(waiting, last=last)

    def drop_session(self, session: int) -> None:
        """The connection of these requests is gone: their answers have no receiver."""
        self._held.pop(session, None)
        for waiting in list(self._by_session.get(session, ())):
            self._forget(waiting)

    def fail_all(self, error: PenstockError) -> None:
        """Answers every request with an error, held or not: this broker carries out nothing any more."""
        self._held.clear()
        for waiting in [one for of_session in self._by_session.values() for one in of_session]:
            if not waiting.answered:
                tell = waiting.on_result
                self._forget(waiting)
                tell(error)

    def _try(self, waiting: Waiting, *, last: bool) -> None:
        if waiting.answered:  # by what an earlier answer of this round brought about
            return
        held = self._held.get(waiting.session) if self._held else None
        if held is not None:
            held[waiting] = last or held.get(waiting, False)
            return
        result = waiting.retry(last)
        if result is not None:
            tell = waiting.on_result
            self._forget(waiting)
            tell(result)

    def _forget(self, waiting: Waiting) -> None:
        waiting.answered = True
        waiting.retry = waiting.on_result = _nobody  # its deadline may be far off: what they hold need not wait for it
        self._count -= 1
        for waker in waiting.wakers:
            found = self._by_waker.get(waker)
            if found is waiting:
                del self._by_waker[waker]
            elif isinstance(found, dict):
                found.pop(waiting, None)
                if not found:
                    del self._by_waker[waker]
        of_session = self._by_session[waiting.session]
        del of_session[waiting]
        if not of_session:
            del self._by_session[waiting.session]
        self._deadlines.cancel(waiting)


def _nobody(_: object) -> None:
    """Drops the answer."""
