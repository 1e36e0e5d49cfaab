"""Recovery after a lost lease or a fenced append: stops publishing, begins a new epoch, and revalidates every session.

A process that stood still does not know it, and other gateways may have its clients by then. The home of sessions
therefore ends the *epoch* of a gateway from which it takes a session that was not released, or that it takes for dead.
No broker stores anything of an ended epoch. This needs no clock, and covers messages in any buffer.

Messages that were held back leave with the new epoch, except those of sessions that another gateway has: their
connections are closed here, and the other gateway has their wills. A session that is taken after the new epoch has
begun ends that one, so no session is missed. Nothing here waits. docs/protocols/fencing.md has the states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from gateway.connections.lease import GatewayLease
from gateway.connections.pending_connects import PendingConnects
from gateway.connections.wills import Wills
from gateway.net.rounds import Stage
from gateway.publishing.upstream import Upstream
from gateway.sessions.session import Session
from gateway.sessions.store import SessionStore
from penstock.errors import PenstockError
from penstock.protocol.requests.sessions import CONNECTED, SessionSave

_log: Final = logging.getLogger(__name__)


class Question:
    """Question whether a session is still this gateway's: a save of it that changes nothing. ``matters`` no more once
    its connection is over."""

    __slots__ = ("matters", "on_lost", "save")

    def __init__(self, save: SessionSave, on_lost: Callable[[], None], matters: Callable[[], bool]) -> None:
        self.save = save
        self.on_lost = on_lost
        self.matters = matters


class LeaseRecovery(Stage):
    """The recovery of one gateway's lease: the first stage of a round's end, so that nothing is sent in doubt.
    ``sessions``: those with connections."""

    def __init__(
        self,
        lease: GatewayLease,
        home: SessionStore,
        upstream: Upstream,
        wills: Wills,
        pending_connects: PendingConnects,
        sessions: Callable[[], Iterable[Session]],
    ) -> None:
        self._lease = lease
        self._home = home
        self._upstream = upstream
        self._wills = wills
        self._pending_connects = pending_connects
        self._sessions = sessions
        self._is_beginning = False
        self._open: dict[Question, None] = {}
        self._again: list[Question] = []  # those of them whose answers were lost
        self._lost = 0

    def flush(self) -> None:
        """Sees to what the home and the brokers have said since."""
        self._lease.flush()
        upstream = self._upstream
        if self._lease.has_lapsed or (upstream.is_refused and not upstream.is_held):
            self.doubt()
        elif upstream.is_held:
            self._go_on()

    def doubt(self) -> None:
        """This gateway may have lost sessions without a call: the home calls no gateway that it takes for dead, or that
        was too slow."""
        if self._is_beginning:
            return
        _log.warning("this gateway stood still or was away, and may have lost sessions; it asks about all of them")
        self._is_beginning = True
        self._upstream.hold()
        self._lease.begin_epoch(self._begun)

    def _begun(self) -> None:
        """The home has begun the new epoch: asks about all sessions, of which some may be lost."""
        self._is_beginning = False
        self._pending_connects.doubt()
        self._open.clear()
        self._again.clear()
        self._lost = 0
        for session in self._sessions():
            save = SessionSave(session.client_id, session.epoch, CONNECTED, session.expiry_s)
            self._open[Question(save, session.lose, partial(_is_connected, session))] = None
        for save, on_lost in self._wills.held():
            self._open[Question(save, on_lost, _always)] = None
        self._ask(list(self._open))

    def _ask(self, questions: Iterable[Question]) -> None:
        for one in questions:
            if one.matters():
                self._home.save(one.save, partial(self._answered, one))
            else:
                self._open.pop(one, None)
        self._go_on()

    def _answered(self, question: Question, outcome: bool | PenstockError) -> None:
        if question not in self._open:
            return
        if isinstance(outcome, PenstockError):
            self._again.append(question)
            return
        del self._open[question]
        if not outcome:
            self._lost += 1
            question.on_lost()
        self._go_on()

    def _go_on(self) -> None:
        """Ends the recovery when every question is answered and the home has heard the last word about each session
        that might be another's: the wills of these are among what is kept back."""
        if not self._open and not self._is_beginning and self._upstream.is_held and not self._home.is_unsure:
            _log.warning("this gateway goes on; %d of its sessions were another's", self._lost)
            self._upstream.go_on(self._lease.epoch)

    def tick(self) -> None:
        """Asks again what was not answered, and goes on where nothing is open any more, however that came about: what
        the home had not heard of a session is void once its client is back."""
        again, self._again = self._again, []
        self._ask(again)


def _is_connected(session: Session) -> bool:
    return session.device is not None


def _always() -> bool:
    return True
