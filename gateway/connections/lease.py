"""The lease of this gateway on its sessions.

It is renewed at the home of sessions after each third of its time, with the name of this gateway's *epoch*. The home
ends the epoch when it gives away a session that this gateway has not released. Each answer names sessions of dead
gateways whose wills are to be claimed. A lapsed lease, or an epoch that is over, is noted in ``has_lapsed``;
``lease_recovery.py`` reacts. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.brokers import Broker
from gateway.connections.wills import Wills
from gateway.sessions.store import SessionStore
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.sessions import KeepSessions, SessionDuties


class GatewayLease:
    """A gateway's lease on its sessions.

    Attributes:
        epoch: the name of its present epoch.
        has_lapsed: the home may have given sessions away since this epoch began.
    """

    def __init__(
        self,
        home: SessionStore,
        wills: Wills,
        lease_s: float,
        wake: Callable[[], None],
        epoch: str,
        new_epoch: Callable[[], str],
    ) -> None:
        """``new_epoch`` makes names that nothing else ever has."""
        self._home = home
        self._wills = wills
        self._lease_s = lease_s
        self._wake = wake
        self._new_epoch = new_epoch
        self.epoch = epoch
        self.has_lapsed = False
        self._on_begun: Callable[[], None] | None = None  # the home has not heard of this epoch yet
        self._kept_at = float("-inf")
        self._now = self._renewed_at = float("inf")  # there was no tick, and so no lease to lapse
        self._lapsed_at = float("-inf")
        self._is_fresh = True
        self._is_keeping = False

    def flush(self) -> None:
        """Begins the lease at once where the home has been found: before anything else is asked there."""
        found = self._home.found
        if found is not None:
            self._home.use(found)
            self._keep(found)

    def tick(self, now: float) -> None:
        """Renews the lease when it is time."""
        self._now = now
        broker = self._home.broker
        if broker is not None and self._is_unkept(now):
            self._kept_at = now
            self._keep(broker)

    def _is_unkept(self, now: float) -> bool:
        """Whether it is time to renew the lease. Not only where the last time was answered: the home may be slow to
        answer, and must know who lives."""
        is_new = self._is_fresh or self._on_begun is not None
        return (is_new and not self._is_keeping) or (not self._is_fresh and now - self._kept_at >= self._lease_s / 3)

    def _keep(self, broker: Broker) -> None:
        self._is_keeping = True
        request = KeepSessions(self._home.owner, self._lease_s, self._is_fresh, self.epoch)
        broker.submit(request, partial(self._kept, self._now, self.epoch))

    def begin_epoch(self, on_begun: Callable[[], None]) -> None:
        """Begins another epoch. ``on_begun`` is called when the home has it; the home ends it for sessions that it
        gives away from then on."""
        self.epoch = self._new_epoch()
        self.has_lapsed = False
        self._on_begun = on_begun
        if self._home.broker is not None:
            self._keep(self._home.broker)
            self._wake()

    def _kept(self, asked_at: float, epoch: str, result: Result) -> None:
        self._is_keeping = False
        if isinstance(result, SessionDuties):
            self._is_fresh = False
            is_lapsed = self._now - self._renewed_at >= self._lease_s and asked_at > self._lapsed_at
            if is_lapsed:
                self._lapsed_at = self._now  # the home has answered earlier requests before it hears of this
            self._renewed_at = asked_at
            self._judge_epoch(epoch, result.is_over, is_lapsed)
            self._home.begin()
            if self._on_begun is None and not self.has_lapsed:  # else some may be our own, and are asked about first
                for client in result.clients:
                    self._wills.claim(client)
            self._wake()

    def _judge_epoch(self, epoch: str, is_over: bool, is_lapsed: bool) -> None:
        """The home has heard of an epoch. Where it is over as it begins, all brokers refuse what is sent in it."""
        begun = self._on_begun
        if begun is None:
            if is_lapsed or (is_over and epoch == self.epoch):
                self.has_lapsed = True
        elif epoch == self.epoch:
            self._on_begun = None
            begun()

    def leave(self, on_left: Callable[[], None]) -> None:
        """Gives the lease back as this gateway stops, after its last request. A renewal shows whether its epoch is
        over: then another process may have its name and its sessions by now, and nothing more is said. Otherwise the
        lease begins anew, as that of a process that starts: the home gives what this gateway leaves, wills that wait
        for their time, to other gateways at once, and neither they nor a home that starts anew wait for the old lease
        to end."""
        broker, owner = self._home.broker, self._home.owner
        if broker is None:
            on_left()
            return

        def heard(result: Result) -> None:
            if not isinstance(result, SessionDuties) or result.is_over:
                on_left()
                return
            anew = KeepSessions(owner, self._lease_s, True, self._new_epoch())
            broker.submit(anew, lambda _: on_left())

        broker.submit(KeepSessions(owner, self._lease_s, False, self.epoch), heard)
