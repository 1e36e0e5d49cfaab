"""The log of connections: who connected, who disconnected and why, whose CONNECT was refused, which handshakes failed.

Connects and disconnects are lines of level INFO, refusals and failed handshakes of WARNING. Each of the four kinds has
a rate of its own (``penstock/service/paced_lines.py``). What a client has chosen is quoted and cut: no line holds a
line break, a password or a payload. What the access rules refuse goes to the audit log. Pure but for the log.
"""

from __future__ import annotations

import logging
from typing import Final

from gateway.login.auth import BAD_CREDENTIALS, MQTT, Identity, Peer
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told, code_of
from penstock.access.policy import Identity as Known
from penstock.service.audit import Audit
from penstock.service.paced_lines import LOG_RATES, Kind, check_detail

SHOWN_CHARACTERS: Final = 128
CLIENT_CLOSED: Final = "the client closed the connection without DISCONNECT"
DISCONNECT: Final = "the client sent DISCONNECT"
DROPPED: Final = "the gateway closed the connection"

_log = logging.getLogger(__name__)


def words(reason: Reason) -> str:
    """A reason code for a person: its name, and what it means here."""
    code = code_of(reason)
    try:
        name = ReasonCode(code).name.lower().replace("_", " ")
    except ValueError:
        name = "unknown reason"
    return f"0x{code:02x} {name} ({reason.why})" if isinstance(reason, Told) else f"0x{code:02x} {name}"


class Journal:
    """The connection log of one gateway. ``detail``: a key of ``LOG_RATES``. ``audit``: of what is refused."""

    def __init__(self, detail: str, audit: Audit) -> None:
        self._audit = audit
        rate = LOG_RATES[detail]
        self._connected = Kind(_log, "connected", logging.INFO, rate)
        self._disconnected = Kind(_log, "disconnected", logging.INFO, rate)
        self._refused = Kind(_log, "refused", logging.WARNING, rate)
        self._failed = Kind(_log, "handshake failed", logging.WARNING, rate)
        self._kinds = (self._connected, self._disconnected, self._refused, self._failed)

    def change(self, detail: str) -> None:
        """Another key of ``LOG_RATES`` counts from now on. Raises ``InvalidConfig``."""
        check_detail(detail)
        for kind in self._kinds:
            kind.change(LOG_RATES[detail])

    def connected(self, peer: Peer, client_id: str, user: str, is_v5: bool, keep_alive_s: int, now: float) -> None:
        """A client has its session."""
        if self._connected.may_say(now):
            who = f"{_who(client_id, user)}, from {_where(peer)}"
            said = f"{who}, with MQTT {'5' if is_v5 else '3'}, keep-alive {keep_alive_s} s"
            self._connected.say(said, **_fields(peer, client_id, user))

    def disconnected(self, peer: Peer, client_id: str, user: str, why: Reason | str, stay_s: float, now: float) -> None:
        """The connection of a client with a session is over. ``stay_s``: how long it stood."""
        if self._disconnected.may_say(now):
            who = f"{_who(client_id, user)}, from {_where(peer)}"
            said = f"{who}, after {stay_s:.1f} s: {_why(why)}"
            self._disconnected.say(said, **_fields(peer, client_id, user), why=_why(why))

    def turned_away(self, peer: Peer, client_id: str | None, why: Reason | str, now: float) -> None:
        """The connection of a client without a session is over. ``client_id``: of its CONNECT, ``None`` without one."""
        if client_id is None:
            if why not in (CLIENT_CLOSED, ReasonCode.SERVER_SHUTTING_DOWN):  # a health check, or our own stop
                self.handshake_failed(peer.address, peer.listener, why, now)
            return
        is_told = not isinstance(why, str) and code_of(why) == BAD_CREDENTIALS  # by ``Attempts``
        if not is_told and self._refused.may_say(now):
            said = f"{_who(client_id, '')}, from {_where(peer)}: {_why(why)}"
            self._refused.say(said, **_fields(peer, client_id, ""), why=_why(why))

    def denied(self, act: str, peer: Peer, identity: Identity, name: str) -> None:
        """The access rules do not let a client do something with this name or filter."""
        user = Known(identity.user_name, MQTT)
        self._audit.note(user, peer.address, act, name, allowed=False, why="access rules", client=identity.client_id)

    def handshake_failed(self, address: str, listener: str, why: Reason | str, now: float) -> None:
        """A connection is over before its CONNECT."""
        if self._failed.may_say(now):
            said = f"from {address} at {listener}: {_why(why)}"
            self._failed.say(said, address=address, listener=listener, why=_why(why))

    def tick(self, now: float) -> None:
        """To be called about twice a second."""
        for kind in self._kinds:
            kind.tick(now)


def _who(client_id: str, user: str) -> str:
    named = f"client {client_id[:SHOWN_CHARACTERS]!r}"
    return f"{named}, user {user[:SHOWN_CHARACTERS]!r}" if user else named


def _why(why: Reason | str) -> str:
    """A reason, which may quote the client."""
    text = (why if isinstance(why, str) else words(why))[: 2 * SHOWN_CHARACTERS]
    return text if text.isprintable() else repr(text)


def _where(peer: Peer) -> str:
    return f"{peer.address} at {peer.listener}"


def _fields(peer: Peer, client_id: str, user: str) -> dict[str, str | None]:
    """The fields of a line in JSON beside its text."""
    return {
        "client_id": client_id[:SHOWN_CHARACTERS],
        "user": user[:SHOWN_CHARACTERS] or None,
        "address": peer.address,
        "listener": peer.listener,
    }
