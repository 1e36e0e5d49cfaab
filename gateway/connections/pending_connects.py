"""Clients that wait for their sessions, and what is restored if one does not arrive.

The home gets the will and the expiry of a client before the client is admitted. If it is not admitted, an existing
session stays as it was, with its messages, expiry and waiting will; the will of a connection that was never admitted
does not count (MQTT-3.1.2-7). One entry per client, while one of its connections waits. Nothing here waits.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gateway.connections.wills import Wills
from gateway.sessions.lasting import Client
from gateway.sessions.session_state import decode_will
from gateway.sessions.store import SessionStore
from penstock.protocol.requests.sessions import CONNECTED, GONE, NO_WILL, RELEASED, OpenedSession, SessionSave


class PendingConnect:
    """A client on its way to its session. Another connection of it may take the place of the first one meanwhile.

    Attributes:
        device: the connection that is to have the session.
        past: what there was before any of them was given it, as it is still to be done; ``None``: none was yet.
        will: that of the connection that was given it last, as its home tells it.
        due: when the will of the past is due, if one waits.
        is_sure: whether what it is given is known not to be another gateway's by now.
    """

    __slots__ = ("device", "due", "is_sure", "past", "will")

    def __init__(self, device: Client | None) -> None:
        self.device = device
        self.past: OpenedSession | None = None
        self.will = b""
        self.due = math.inf
        self.is_sure = True

    def ask_anew(self, device: Client) -> None:
        """Another connection takes the place of the first one."""
        self.device, self.is_sure = device, True

    def doubt(self) -> None:
        """Notes that its session may be another gateway's by now."""
        self.is_sure = False

    def note_due(self, due: float) -> None:
        """The will of the past is due then."""
        self.due = due

    def settle(self, past: OpenedSession, will: bytes) -> None:
        """A session was given to it: what there was, and the will that it has at its home now."""
        self.past, self.will = past, will

    def seen_through(self, found: OpenedSession) -> OpenedSession:
        """The found session, without the traces of a connection that was never admitted."""
        past = self.past
        if past is None or found.state != CONNECTED or found.will != self.will:
            return found
        expiry_s = past.expiry_s if past.present else found.expiry_s
        return replace(found, state=past.state, will=past.will, expiry_s=expiry_s, absence_s=past.absence_s)


class PendingConnects:
    """The clients that wait for their sessions at one gateway, by client id."""

    def __init__(self, home: SessionStore, wills: Wills) -> None:
        self._home = home
        self._wills = wills
        self._of: dict[str, PendingConnect] = {}

    def holder(self, client_id: str) -> Client | None:
        """The connection that is to have a client's session, if one is on its way."""
        pending = self._of.get(client_id)
        return None if pending is None else pending.device

    def begin(self, client_id: str, device: Client) -> None:
        """Assigns the session to this connection."""
        pending = self._of.get(client_id)
        if pending is None:
            self._of[client_id] = PendingConnect(device)
        else:
            pending.ask_anew(device)

    def doubt(self) -> None:
        """Sessions of this gateway may have gone to others unnoticed: clients that wait for one here have to ask for it
        again."""
        for pending in self._of.values():
            pending.doubt()

    def is_sure(self, client_id: str) -> bool:
        """Whether what a client on its way is given here can be relied upon."""
        pending = self._of.get(client_id)
        return pending is not None and pending.is_sure

    def forget(self, client_id: str) -> None:
        """The client is admitted, or refused, or is at another gateway by now."""
        self._of.pop(client_id, None)

    def settle(self, client_id: str, given: OpenedSession, will: bytes) -> OpenedSession:
        """A session was given to a connection with this ``will``. Sees to the will that was there; gives what was found
        as it is afterwards, with the will that still waits if the client is not admitted."""
        pending = self._of.get(client_id) or PendingConnect(None)
        due = self._wills.due(client_id)
        is_published = self._wills.cancel(client_id)
        found = pending.seen_through(given)
        old = decode_will(found.will)
        if found is given and old is not None:
            pending.note_due(min(due, self._wills.moment(old, found.expiry_s, found.absence_s)))
        is_left = not is_published and found.state != RELEASED
        passed_s = found.absence_s if due == math.inf else 0.0  # of one that waited here its client is just in time
        if old is not None and is_left and (found.ended or old.delay_s <= passed_s):
            self._wills.publish(client_id, old)
            old = None
        waits = found.present and old is not None and is_left
        past = replace(found, state=GONE if waits else RELEASED, will=found.will if waits else b"")
        pending.settle(past, b"" if will == NO_WILL else will)
        return past

    def give_back(self, client_id: str, device: Client, past: OpenedSession, expiry_s: int) -> None:
        """A session was given to a connection that is not admitted. One that was there before is as it was; its will
        waits on, unless another connection of its client comes after this one."""
        if not past.present:
            self._home.finish(client_id, past.epoch, expiry_s, ends=expiry_s == 0)
            return
        pending, will = self._of.get(client_id), decode_will(past.will)
        if will is None or pending is None or pending.device is not device:
            self._home.finish(client_id, past.epoch, past.expiry_s, ends=False)
        else:
            self._home.let_go(SessionSave(client_id, past.epoch, GONE, past.expiry_s, past.will))
            self._wills.wait(client_id, past.epoch, will, past.expiry_s, pending.due)
