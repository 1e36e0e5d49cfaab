"""Answers to operators about clients that are connected here, and the actions that they request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from gateway.connections.connections import Connections
from gateway.connections.guests import Guest
from gateway.connections.taps import Tapped, Taps
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.net.rounds import Rounds
from gateway.sessions.session import Session
from gateway.sessions.watch import terms_of
from penstock.protocol.requests.sessions import SessionQuestion, SessionTerms

_DISCONNECTED: Final = Told(ReasonCode.ADMINISTRATIVE_ACTION, "an operator has disconnected the client")


class OperatorQuestions:
    """Answers of one gateway. ``sessions``: those with a connection here, by client."""

    def __init__(self, sessions: Mapping[str, Session], connections: Connections, rounds: Rounds) -> None:
        self._sessions = sessions
        self._connections = connections
        self._rounds = rounds
        self._taps = Taps()

    def answer(self, question: SessionQuestion) -> SessionTerms | None:
        """A client's connection and subscriptions; ``None`` if it is not here. On request it is disconnected, or its
        packets are followed."""
        session = self._sessions.get(question.client)
        if session is None or session.device is None:
            return None
        device = session.device
        connected_s = self._connections.connected_s(cast(Guest, device), self._rounds.now)
        address, protocol = device.origin()
        told = terms_of(session, question)._replace(address=address, protocol=protocol, connected_s=connected_s)
        if question.watch_after >= 0:
            seen = self._taps.ask(question.client, cast(Tapped, device), question.watch_after, self._rounds.now)
            told = told._replace(watch_after=question.watch_after, packets=seen)
        if question.disconnects:
            device.fail(_DISCONNECTED)
        return told
