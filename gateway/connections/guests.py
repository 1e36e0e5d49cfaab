"""Pending and admitted connections as CONNECT handling sees them: the request, the grants, and the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.connections.timeouts import Expected
from gateway.connections.turns import Waiter
from gateway.limits.limits import Stallable
from gateway.limits.memory_budget import Holding
from gateway.login.auth import Identity, Peer
from gateway.mqtt.reason_codes import Reason
from gateway.sessions.lasting import Client
from gateway.sessions.session import Session
from gateway.sessions.session_state import Will


class Guest(Client, Expected, Holding, Stallable, Waiter, Protocol):
    """A connection that has come in (``gateway.connections.device.Device``).

    Attributes:
        peer: where it comes from.
        session: its session, once it is admitted.
        named: the client id in its CONNECT, ``None`` before that.
    """

    peer: Peer
    session: Session | None
    named: str | None

    def identify(self, identity: Identity) -> None:
        """It is known who it is."""
        ...

    def accepts(self, asked: Arriving, grant: Grant) -> bool:
        """Whether it takes a packet of the size of the CONNACK that it is going to get (MQTT-3.1.2-24)."""
        ...

    def drop(self, why: Reason | str = "") -> None:
        """Closes without a word to the client; ``why`` is for the log."""
        ...

    def forget_routes(self) -> None:
        """Whether it may publish to a name is to be asked again."""
        ...


class Arriving(NamedTuple):
    """Demands of a CONNECT, whatever its version. ``takes_id``: it may leave the client id to the server.
    ``wants_level``: acknowledgements are to say how safe a message is. ``misuse``: what it asks for that there is not.
    ``proof``: what the server shows a client that has proven who it is. ``level``: of the protocol."""

    client_id: str
    user_name: str | None
    password: bytes | None
    clean_start: bool
    expiry_s: int
    keep_alive_s: int
    receive_max: int
    will: Will | None
    is_v5: bool
    wants_response_information: bool = False
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    takes_id: bool = True
    wants_level: bool = False
    misuse: str = ""
    proof: bytes | None = None
    level: int = 5

    def __repr__(self) -> str:  # a password must not reach a log
        return f"Arriving(client_id={self.client_id!r}, user_name={self.user_name!r}, level={self.level})"


class Grant(NamedTuple):
    """Terms that a client will get, known before anything of its session is touched. ``was_assigned``: its client
    id."""

    identity: Identity
    keep_alive_s: int
    expiry_s: int
    was_assigned: bool


class Admitted(NamedTuple):
    """The outcome of an accepted CONNECT. ``present``: whether its session was there before."""

    session: Session
    grant: Grant
    present: bool


OnAdmitted = Callable[[Admitted | Reason], None]
