"""Filters and shares that are open at the brokers in the names of sessions that outlive their connections.

A subscription of QoS 0 keeps nothing while its client is away. If it replaces another one, the filter in the session's
name is released: when it stands, when the earlier one is put back, or when its connection ends first. A released filter
is closed when the session is durable without it; until then the session's next owner may continue the subscription, and
finds messages in flight there (MQTT-3.10.4-3).

A gateway that gets a session closes what its former gateway has not closed. A filter that is wanted again meanwhile is
closed and opened again, so that it begins with the new subscription; a share continues. Decides only; never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.delivery.filter_leases import FilterLeases
from gateway.delivery.shared import SharedSubscriptions
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Session


class SessionHolds:
    """The filters and shares that brokers hold open for one gateway's sessions. ``note`` has a session saved soon."""

    def __init__(self, leases: FilterLeases, shared: SharedSubscriptions, note: Callable[[Session], None]) -> None:
        self._leases = leases
        self._shared = shared
        self._note = note

    def let_go(self, session: Session, filter: str) -> None:
        """A subscription has ended."""
        lasting = session.lasting
        if lasting is not None:
            lasting.forget(filter)
            self._let_go(session, lasting, filter)

    def keep_no_more(self, session: Session, filter: str) -> None:
        """A subscription stands, or is about to be saved: at QoS 0 it goes on without a place that outlives this
        gateway."""
        lasting = session.lasting
        if lasting is None or filter not in lasting.held or session.subscriptions[filter].qos:
            return
        lasting.forget_places(filter)
        self._let_go(session, lasting, filter)
        self._leases.begin_unheld(session, filter)

    def resume(self, session: Session) -> None:
        """A session that was saved is here: what is still open in its name and was to be closed is."""
        lasting = session.lasting
        if lasting is not None and lasting.closing:
            left, lasting.closing = lasting.closing, {}
            self._leases.close(lasting, list(left))
            self._note(session)  # else its next owner closes them once more

    def part(self, session: Session, *, ends: bool) -> None:
        """The connection of a session is over, and its last state is about to be saved if it goes on. What is on its
        way to stand is saved as if it did."""
        for filter in session.subscriptions:
            self.keep_no_more(session, filter)
        if session.lasting is not None:
            self._leases.part(session.lasting)
        self._shared.part(session, ends=ends)

    def forget(self, ended: Lasting) -> None:
        """A session is over, here or while it was not here."""
        for filter in ended.held:
            self._shared.let_go(ended, filter)
        self._leases.forget(ended)

    def _let_go(self, session: Session, lasting: Lasting, filter: str) -> None:
        self._shared.let_go(lasting, filter)
        if not self._leases.let_go(lasting, filter):
            return
        if not lasting.closes_next:
            lasting.when_saved.append(partial(self._is_saved, session, lasting, lasting.closes_next))
            self._note(session)
        lasting.closes_next.append(filter)
        lasting.closing[filter] = lasting.closes_next

    def _is_saved(self, session: Session, lasting: Lasting, closes: list[str]) -> None:
        """The session is durable without these, except those that it has released once more."""
        gone = {filter: None for filter in closes if lasting.closing.get(filter) is closes}
        for filter in gone:
            del lasting.closing[filter]
        for packet_id, made in session.sent():
            origin = made.arrival.origin
            if origin is not None and origin.is_light and origin.filter in gone:
                session.relocate(packet_id, made)
        self._leases.close(lasting, list(gone))
