"""Enhanced authentication of one connection (MQTT 5, 4.12): which AUTH may come when, and what follows from it.

A client that names a method in its CONNECT first goes through an exchange (``gateway.login.auth.Exchange``). Its
session, its will and another connection with its client id are touched only after the proof. Until its CONNACK it may
send nothing but AUTH and DISCONNECT (MQTT-3.1.2-30).

A connected client may authenticate again with the same method and as the same user, while its traffic goes on (MQTT 5,
4.12.1). An exchange that fails, or takes longer than a CONNECT may, ends the connection with 0x87 (MQTT-4.12.0-4,
-4.12.1-2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.connections.guests import Arriving, Guest, OnAdmitted
from gateway.connections.services import Services
from gateway.login.auth import Challenge, Denied, Exchange
from gateway.mqtt.packets import Auth
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told

MakeAuth = Callable[[int, bytes, str], bytes]
Enter = Callable[[Arriving, Callable[[OnAdmitted], None]], None]


class Authenticating:
    """The exchanges of one connection, one at a time."""

    __slots__ = ("_asked", "_device", "_due", "_enter", "_exchange", "_make", "_services")

    def __init__(self, device: Guest, services: Services, asked: Arriving, make: MakeAuth, enter: Enter) -> None:
        """``make`` gives an AUTH with a reason code, data and words, nothing where the client cannot take it; ``enter``
        has the client admitted as it asks for it, by a function that does it."""
        self._device = device
        self._services = services
        self._asked = asked
        self._make = make
        self._enter = enter
        self._exchange: Exchange | None = None
        self._due = 0.0

    def begin(self) -> None:
        """The CONNECT has come."""
        begun = self._services.connecting.refusal(self._device, self._asked) or self._new_exchange()
        if isinstance(begun, int | Told):  # (MQTT-4.12.0-1)
            self._device.fail(begun)
        else:
            self._exchange = begun
            self._go_on(begun, self._asked.authentication_data)

    def receive(self, packet: Auth) -> None:
        """An AUTH of the client."""
        data = packet.properties.authentication_data
        has_begun, is_connected = self._exchange is not None, self._device.session is not None
        if packet.reason_code == ReasonCode.RE_AUTHENTICATE and is_connected and not has_begun:
            self._begin_again(data)
        elif packet.reason_code != ReasonCode.CONTINUE_AUTHENTICATION or self._exchange is None:
            self._device.fail(ReasonCode.PROTOCOL_ERROR)
        else:
            self._go_on(self._exchange, data)

    def _begin_again(self, data: bytes | None) -> None:
        begun = self._new_exchange()
        if isinstance(begun, int | Told):  # the method is not offered any more
            self._device.fail(ReasonCode.NOT_AUTHORIZED)
        else:
            self._exchange = begun
            self._due = self._services.connections.expect(self._device, self)
            self._go_on(begun, data)

    def is_late(self, now: float) -> bool:
        """Whether an exchange of a connected client should have ended by now."""
        return self._exchange is not None and self._due <= now

    def give_up(self) -> None:
        """It is late."""
        self._exchange = None
        self._device.fail(ReasonCode.NOT_AUTHORIZED)

    def _new_exchange(self) -> Exchange | Reason:
        asked, device = self._asked, self._device
        is_again = device.session is not None
        method = asked.authentication_method or ""
        return self._services.authenticator.begin(method, asked.client_id, device.peer, is_again=is_again)

    def _go_on(self, exchange: Exchange, data: bytes | None) -> None:
        outcome = exchange.receive(data or b"")
        if isinstance(outcome, Challenge):
            self._say(ReasonCode.CONTINUE_AUTHENTICATION, outcome.data, "")
            return
        self._exchange = None
        identity = self._device.identity
        named = self._asked.user_name if identity is None else identity.user_name
        if isinstance(outcome, Denied) or named not in (None, outcome.user_name):
            self._device.fail(ReasonCode.NOT_AUTHORIZED)
        elif identity is None:
            asked = self._asked._replace(proof=outcome.data or None)
            self._enter(asked, partial(self._services.connecting.admit_proven, self._device, asked, outcome.user_name))
        else:
            self._say(ReasonCode.SUCCESS, outcome.data, "authenticated again")

    def _say(self, reason: int, data: bytes, why: str) -> None:
        said = self._make(reason, data, why)
        self._device.send(said)
        if not said:  # who cannot take it cannot be asked
            self._device.fail(ReasonCode.PACKET_TOO_LARGE)
