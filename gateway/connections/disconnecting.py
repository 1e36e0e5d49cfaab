"""The end of a connection, and what follows for its session and its will.

A will is published when the connection ends without a normal DISCONNECT: after its delay, or when the session ends,
whichever is first (MQTT-3.1.2-8). A client that is back in time cancels it. A session that outlives its connection is
saved and released; then this gateway keeps only a waiting will of it. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.connections.connections import Connections
from gateway.connections.guests import Guest
from gateway.connections.pending_connects import PendingConnects
from gateway.connections.wills import Wills
from gateway.delivery.downstream import Downstream
from gateway.mqtt.reason_codes import Reason
from gateway.net.rounds import Rounds
from gateway.publishing.upstream import Upstream
from gateway.sessions.exchange_ids import ExchangeIds
from gateway.sessions.saver import SessionSaver
from gateway.sessions.session import Session
from gateway.sessions.store import SessionStore, ignore_loss
from penstock.protocol.requests.sessions import GONE, NO_WILL, RELEASED, SessionSave


class Disconnecting:
    """The ends of one gateway's connections. ``sessions``: those with a connection here, by client."""

    def __init__(
        self,
        connections: Connections,
        sessions: dict[str, Session],
        pending_connects: PendingConnects,
        home: SessionStore,
        saver: SessionSaver,
        exchanges: ExchangeIds,
        wills: Wills,
        upstream: Upstream,
        downstream: Downstream,
        rounds: Rounds,
    ) -> None:
        self._connections = connections
        self._sessions = sessions
        self._pending_connects = pending_connects
        self._home = home
        self._saver = saver
        self._exchanges = exchanges
        self._wills = wills
        self._upstream = upstream
        self._downstream = downstream
        self._rounds = rounds

    def left(
        self,
        device: Guest,
        why: Reason | str,
        *,
        is_normal: bool = False,
        ends_session: bool = False,
        is_taken: bool = False,
    ) -> None:
        """A connection is over, and ``why``. ``is_normal``: its client took leave, so its will is void (MQTT-3.1.2-10).
        ``is_taken``: its client has another connection, which goes on with the session unless that ends."""
        since = self._connections.closed(device)
        if since is None:
            return
        session, now, journal = device.session, self._rounds.now, self._connections.journal
        if session is None:
            self._withdraw(device)
            journal.turned_away(device.peer, device.named, why, now)
            return
        user = device.identity.user_name if device.identity is not None else ""
        journal.disconnected(device.peer, session.client_id, user, why, now - since, now)
        ends = ends_session or session.expiry_s == 0
        will = None if is_normal else session.will
        waits = will is not None and will.delay_s > 0 and not ends
        if will is None or is_taken:
            on_lost = ignore_loss
            if will is not None and not waits:
                on_lost = self._wills.publish(session.client_id, will)
            self._put_away(session, RELEASED, ends=ends, on_lost=on_lost)
        else:  # the home keeps it until it is stored
            self._put_away(session, GONE, ends=ends)
            if waits:
                self._wills.wait(session.client_id, session.epoch, will, session.expiry_s)
            else:
                last_word = partial(self._home.finish, session.client_id, session.epoch, session.expiry_s, ends=ends)
                held = SessionSave(session.client_id, session.epoch, GONE, session.expiry_s)
                self._wills.publish(session.client_id, will, last_word, held)
        self._rounds.wake()

    def _withdraw(self, device: Guest) -> None:
        """A connection is over that had no session yet: if its home was not asked for one, it need not be."""
        client_id = device.identity.client_id if device.identity is not None else ""
        if self._pending_connects.holder(client_id) is device and self._home.withdraw(client_id):
            self._pending_connects.forget(client_id)

    def _put_away(self, session: Session, state: int, *, ends: bool, on_lost: Callable[[], None] = ignore_loss) -> None:
        """Removes the session from this gateway. ``GONE``: its home keeps it until its will is stored. ``on_lost``: it
        was another's already."""
        del self._sessions[session.client_id]
        session.detach()
        self._downstream.holds.part(session, ends=ends)
        if ends:
            if session.lasting is not None:
                self._upstream.flush()  # an exchange that is stored behind its session's end would never be forgotten
                self._exchanges.forget(session.client_id, session.lasting.generation)
            self._downstream.leave(session, ends=True)
            if state == RELEASED:
                self._home.end(session.client_id, session.epoch, on_lost)
        else:
            self._saver.leave(session, state, b"" if state == GONE else NO_WILL, on_lost)
            self._downstream.leave(session, ends=False)
        session.clear()
