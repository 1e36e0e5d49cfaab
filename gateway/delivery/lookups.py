"""Schedules history and retained lookups fairly across sessions, bounded per broker.

Lookups search among very many messages, of which few may match. So the work under way at one broker is bounded,
measured by messages to look at and not by requests: a client that subscribes to a thousand filters over a million
messages does not delay others. A broker in this process answers at once; it too gets no more than that within one
round. Sessions have turns, and each one's requests keep their order. Answers are noted; ``take`` continues the sessions
that got one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from gateway.brokers import Broker
from gateway.fairness import FairQueue
from gateway.net.rounds import Rounds
from gateway.sessions.session import Cursor, Session
from penstock.protocol.requests.request import Request, Result

WORK_MAX: Final = 512
"""The work that may be under way at one broker when another request goes out. The unit is a message that is read and
judged; other work is measured by its time."""
WORK_PER_TURN: Final = 64
"""The work of a session's turn: one request at least."""

Held = TypeVar("Held")
"""The work for which a cursor is held."""


class _Asked(NamedTuple, Generic[Held]):
    """A request that waits for its turn, or for its answer."""

    cursor: Cursor
    held: Held
    request: Request
    work: int
    tell: Callable[[Result], None]


class _Line(Generic[Held]):
    """The requests that wait for one broker, and those under way."""

    __slots__ = ("queue", "under_way")

    def __init__(self) -> None:
        self.queue: FairQueue[Session, _Asked[Held]] = FairQueue(WORK_PER_TURN, WORK_MAX)
        self.under_way = 0

    def begin(self) -> None:
        """A round begins: what is under way takes of its room."""
        self.queue.begin(WORK_MAX - self.under_way)

    def take(self, stands: Callable[[_Asked[Held]], bool]) -> _Asked[Held] | None:
        """The request whose turn it is, of those that still stand; it is under way then."""
        while (taken := self.queue.take()) is not None:
            session, asked = taken
            if stands(asked):
                self.queue.charge(session, asked.work)
                self.under_way += asked.work
                return asked
        return None

    def answered(self, asked: _Asked[Held]) -> None:
        """A request is not under way any more."""
        self.under_way -= asked.work


class LookupTurns(Generic[Held]):
    """The requests of one gateway for stored messages of one kind: history, or retained messages."""

    def __init__(
        self,
        current: Mapping[Cursor, Held],
        go_on: Callable[[Cursor], None],
        rounds: Rounds,
        fail: Callable[[Cursor], None],
    ) -> None:
        """``current``: what each cursor is held for; cursors that are gone get no requests and no answers. ``go_on``
        gets cursors that may continue. ``fail`` is called, within the ``except``, if an answer has caused an unforeseen
        error: it ends one client, and no round."""
        self._current = current
        self._go_on = go_on
        self._fail = fail
        self._rounds = rounds
        self._round = rounds.number
        self._lines: dict[Broker, _Line[Held]] = {}
        self._ready: dict[Cursor, None] = {}
        self._failed: dict[Cursor, None] = {}
        self._is_due = False

    def ask(self, cursor: Cursor, held: Held, request: Request, work: int, tell: Callable[[Result], None]) -> None:
        """Has a request made of the cursor's broker when its turn comes. ``work``: what is to be looked at for it."""
        line = self._lines.get(cursor.feed.broker)
        if line is None:
            line = self._lines[cursor.feed.broker] = _Line()
        line.queue.add(cursor.session, _Asked(cursor, held, request, work, tell))
        self._call()

    def spent(self, cursor: Cursor, work: int) -> None:
        """Adds work that was unknown at the request."""
        self._lines[cursor.feed.broker].queue.charge(cursor.session, work)

    def ready(self, cursor: Cursor) -> None:
        """It may go on with what it was answered."""
        self._ready[cursor] = None
        self._call()

    def failed(self, cursor: Cursor) -> None:
        """It was not answered, and goes on with the next ``retry``."""
        self._failed[cursor] = None

    def retry(self) -> None:
        """Asks again where a broker did not answer."""
        failed, self._failed = self._failed, {}
        for cursor in failed:
            self.ready(cursor)

    def take(self) -> None:
        """Goes on with what was answered, and asks for more; to be called once per flush. What is answered at once may
        ask for more in the same flush, as long as that has little to look at. Costs next to nothing while nothing is
        due: every round comes here."""
        if not self._is_due:
            return
        self._is_due = False
        if self._round != self._rounds.number:
            self._round = self._rounds.number
            for line in self._lines.values():
                line.begin()
        while True:
            ready, self._ready = self._ready, {}
            for cursor in ready:
                if cursor in self._current:
                    self._go_on(cursor)
            for broker, line in self._lines.items():
                self._ask(broker, line)
            if not self._ready:
                return

    def _ask(self, broker: Broker, line: _Line[Held]) -> None:
        while (asked := line.take(self._stands)) is not None:
            broker.submit(asked.request, partial(self._answered, line, asked))
        if line.queue and line.under_way < WORK_MAX:
            self._is_due = True
            self._rounds.again()

    def _call(self) -> None:
        """Calls for the next ``take``."""
        self._is_due = True
        self._rounds.wake()

    def _stands(self, asked: _Asked[Held]) -> bool:
        return self._current.get(asked.cursor) is asked.held

    def _answered(self, line: _Line[Held], asked: _Asked[Held], result: Result) -> None:
        line.answered(asked)
        if line.queue:
            self._call()
        if self._stands(asked):
            try:
                asked.tell(result)
            except Exception:
                self._fail(asked.cursor)
