"""Takeovers by other gateways: a client whose session is here has connected elsewhere, or an operator ends its session.

The session goes at once: its connection gets 0x8E and is closed (MQTT-3.1.4-3). A client that waits here for the same
session is refused when the home answers; a will that waits here is handed over. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.connections.pending_connects import PendingConnects
from gateway.connections.wills import Wills
from gateway.limits.rates import Takeovers
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.net.rounds import Rounds
from gateway.sessions.session import Session
from penstock.protocol.requests.sessions import SessionCall

_CLOSED: Final = Told(ReasonCode.ADMINISTRATIVE_ACTION, "an operator has ended the session")


class Takeover:
    """The takeovers of one gateway's sessions. ``sessions``: those with a connection here, by client. ``rate``: counts
    takeovers of a client."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        pending_connects: PendingConnects,
        wills: Wills,
        rate: Takeovers,
        rounds: Rounds,
    ) -> None:
        self._sessions = sessions
        self._pending_connects = pending_connects
        self._wills = wills
        self._rate = rate
        self._rounds = rounds

    def called(self, call: SessionCall) -> None:
        """Another gateway has a client whose session is here."""
        session = self._sessions.get(call.client)
        if session is not None and session.epoch == call.epoch and session.device is not None:
            self._rate.note(call.client, self._rounds.now)
            if call.closes:
                session.device.fail(_CLOSED, ends_session=True)
            else:
                session.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=call.clean)
            return
        self._pending_connects.forget(call.client)
        self._wills.hand_over(call)
