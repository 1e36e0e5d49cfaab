"""What is open at the brokers in the names of sessions that outlive their connections: the filters and shares of
subscriptions for which something is kept while the client is away.

At QoS 0 nothing is kept. A subscription that is replaced by one of QoS 0 goes on through what its gateway has open, and
what was open in its session's name is closed: when it stands, when what stood before is put back, or when its
connection ends before the brokers have answered, for it is saved as it is then. Decides only; never waits.
"""

from __future__ import annotations

from gateway.leases.filters import FilterLeases
from gateway.leases.shared import SharedSubscriptions
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Session


class SessionHolds:
    """Of one gateway."""

    def __init__(self, leases: FilterLeases, shared: SharedSubscriptions) -> None:
        self._leases = leases
        self._shared = shared

    def let_go(self, session: Session, filter: str) -> None:
        """A subscription has ended."""
        lasting = session.lasting
        if lasting is not None:
            lasting.closed.append(filter)
            lasting.forget(filter)
            self._close(lasting, filter)

    def keep_no_more(self, session: Session, filter: str) -> None:
        """A subscription stands, or is about to be saved: at QoS 0 it goes on without a place that outlives this
        gateway."""
        lasting = session.lasting
        if lasting is None or filter not in lasting.held or session.subscriptions[filter].qos:
            return
        lasting.forget_places(filter)
        self._close(lasting, filter)
        self._leases.begin_unheld(session, filter)

    def part(self, session: Session, *, ends: bool) -> None:
        """The connection of a session is over, and its last state is about to be saved if it goes on. What is on its
        way to stand is saved as if it did."""
        for filter in session.subscriptions:
            self.keep_no_more(session, filter)
        self._shared.part(session, ends=ends)

    def forget(self, ended: Lasting) -> None:
        """A session is over, here or while it was not here."""
        for filter in ended.held:
            self._shared.let_go(ended, filter)
        self._leases.forget(ended)

    def _close(self, lasting: Lasting, filter: str) -> None:
        self._shared.let_go(lasting, filter)
        self._leases.let_go(lasting, filter)
