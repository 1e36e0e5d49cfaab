"""A small MQTT 5 client on a plain blocking socket: what ``penstock mqtt pub|sub`` speak to a gateway.

One thing at a time: ``publish`` and ``subscribe`` wait for their acknowledgement, ``messages`` acknowledges each
message after it was taken. Not a library for devices: those have their own.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, TypeVar

from gateway.mqtt import codec
from gateway.mqtt.connection import LEVEL
from gateway.mqtt.packets import (
    LEVEL_5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import PacketError, ReasonCode
from penstock.client.retry import TIMEOUT_S
from penstock.errors import Busy, InvalidConfig, InvalidRequest, PenstockError, TimedOut
from penstock.protocol.addresses import lost, no_server, split_address
from penstock.world import Clock, RealClock

KEEP_ALIVE_S: Final = 60
PACKET_BYTES_MAX: Final = 256 * 1024 * 1024
_READ_BYTES_MAX: Final = 256 * 1024
_FAILURE: Final = 0x80
_PASSING: Final = frozenset({ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY})
"""Refusals that may be over in a moment."""
_FOR_GOOD: Final = frozenset(
    {ReasonCode.SESSION_TAKEN_OVER, ReasonCode.NOT_AUTHORIZED, ReasonCode.ADMINISTRATIVE_ACTION}
)
"""Ends of a connection after which another one would fail too, or would end another client's."""

_P = TypeVar("_P", Connack, Puback, Pubrec, Pubcomp, Suback)


class MqttClient:
    """One session with a gateway. Use it with ``with``.

    Args:
        address: ``host:port`` of the gateway.
        client_id: empty lets the gateway choose one, and the session ends with the connection.
        keep_alive_s: the gateway ends the connection when it hears nothing for half as long again; 0: never. The
            gateway may want another and has the last word (MQTT-3.1.2-21).
        timeout_s: deadline of connecting and of each acknowledgement.
    """

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "",
        user_name: str | None = None,
        password: str | None = None,
        keep_alive_s: int = KEEP_ALIVE_S,
        timeout_s: float = TIMEOUT_S,
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._keep_alive_s = keep_alive_s
        self._clock = clock or RealClock()
        self._hello = Connect(
            client_id,
            keep_alive_s=keep_alive_s,
            user_name=user_name,
            password=None if password is None else password.encode(),
            level=LEVEL_5,
            properties=Properties(user_properties=((LEVEL, "true"),)),
        )
        self._reader = PacketReader(PACKET_BYTES_MAX)
        self._reader.level = LEVEL_5
        self._arrived: deque[Packet] = deque()
        self._socket: socket.socket | None = None
        self._packet_id = 0

    def __enter__(self) -> MqttClient:
        """Connects. Raises ``Unavailable``, ``TimedOut``, ``InvalidRequest`` where the gateway refuses us,
        ``Busy`` if it refuses for the moment, and ``InvalidConfig`` if another kind of server answers."""
        try:
            self._socket = socket.create_connection(split_address(self.address), self._timeout_s)
        except OSError as error:
            raise no_server(self.address, error) from None
        try:
            self._send(self._hello)
            answer = self._wait_for(Connack)
            _check(answer.reason_code, "the gateway refuses the connection", answer.properties.reason_string)
            if answer.properties.server_keep_alive is not None:
                self._keep_alive_s = answer.properties.server_keep_alive
        except PacketError:
            self._socket.close()
            raise _no_gateway(self.address) from None
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError, PenstockError):
            self._send(Disconnect())
        self._socket.close()

    def publish(self, name: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> str:
        """Publishes one message; with QoS 1 or 2 returns when it is acknowledged.

        Returns:
            The level that it has reached, ``cache`` or ``disk``; empty if the server does not say.

        Raises:
            InvalidRequest: the gateway refuses it; it is not stored.
            TimedOut, Unavailable: whether it is stored is unknown.
        """
        self._packet_id = self._packet_id % 0xFFFF + 1
        packet_id = self._packet_id if qos else 0
        self._send(Publish(name, payload, qos=qos, retain=retain, packet_id=packet_id))
        if not qos:
            return ""
        answer = self._wait_for(Puback, packet_id) if qos == 1 else self._wait_for(Pubrec, packet_id)
        _check(answer.reason_code, f"{name} is refused", answer.properties.reason_string)
        if qos == 2:
            self._send(Pubrel(packet_id))
            self._wait_for(Pubcomp, packet_id)
        return dict(answer.properties.user_properties).get(LEVEL, "")

    def subscribe(self, filters: Sequence[str], *, qos: int = 1) -> None:
        """Subscribes; every message that is stored after this returns will come. Raises ``InvalidRequest``."""
        self._packet_id = self._packet_id % 0xFFFF + 1
        self._send(Subscribe(self._packet_id, tuple(Subscription(one, qos) for one in filters)))
        suback = self._wait_for(Suback, self._packet_id)
        for one, code in zip(filters, suback.reason_codes, strict=True):
            _check(code, f"the filter {one} is refused", suback.properties.reason_string)

    def messages(self) -> Iterator[Publish]:
        """The received messages, for ever; a message is acknowledged when the next one is asked for."""
        while True:
            while self._arrived:
                packet = self._arrived.popleft()
                if isinstance(packet, Publish):
                    yield packet
                self._answer(packet)
            if not self._read(self._keep_alive_s / 2 or None):
                self._send(Pingreq())

    def wait_until_readable(self, file: int) -> None:
        """Waits until there is something to read in a file, or its end, and keeps the connection up meanwhile. Raises
        ``Unavailable`` where that ends."""
        assert self._socket is not None
        ready: list[int] = []
        while file not in ready:
            ready, _, _ = select.select([file, self._socket.fileno()], [], [], self._keep_alive_s / 2 or None)
            if not ready:
                self._send(Pingreq())
            elif file not in ready:
                self._read(None)
                self._pass_over_pings()

    def _pass_over_pings(self) -> None:
        for packet in self._arrived:
            if isinstance(packet, Disconnect):
                self._answer(packet)
        self._arrived = deque([packet for packet in self._arrived if not isinstance(packet, Pingresp)])

    def _answer(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.qos:
            self._send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Disconnect):
            said = _said(packet.reason_code, packet.properties.reason_string)
            if packet.reason_code in _FOR_GOOD:
                raise InvalidRequest(f"{self.address}: the gateway has ended the connection and says {said}")
            raise lost(self.address, f"the gateway says {said}")

    # -- the connection

    def _wait_for(self, kind: type[_P], packet_id: int | None = None) -> _P:
        """The answer of this kind and id; messages that come before it stay for ``messages``."""
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            for at, packet in enumerate(self._arrived):
                if isinstance(packet, kind) and packet_id in (None, getattr(packet, "packet_id", None)):
                    del self._arrived[at]
                    return packet
                if isinstance(packet, Disconnect):
                    self._answer(packet)
            left = deadline - self._clock.monotonic()
            if left <= 0 or not self._read(left):
                raise TimedOut(f"{self.address} sent no {kind.__name__.upper()} within {self._timeout_s:g} s")

    def _send(self, packet: Packet) -> None:
        assert self._socket is not None
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(codec.encode(packet, LEVEL_5))
        except OSError as error:
            raise lost(self.address, error.strerror or str(error)) from None

    def _read(self, wait_s: float | None) -> bool:
        """One read; false when nothing came in time; ``None`` waits for ever. Raises ``Unavailable`` and
        ``PacketError``."""
        assert self._socket is not None
        self._socket.settimeout(wait_s)
        try:
            data = self._socket.recv(_READ_BYTES_MAX)
        except TimeoutError:
            return False
        except OSError as error:
            raise lost(self.address, error.strerror or str(error)) from None
        if not data:
            raise lost(self.address, "the gateway closed it")
        self._arrived += self._reader.receive(data)
        return True


def _no_gateway(address: str) -> InvalidConfig:
    """The error for an address where another kind of server answers."""
    hint = "give the address of a gateway, not that of a name server, a broker or a health page"
    return InvalidConfig(f"{address} is no MQTT server (usual port 1883)", hint=hint)


def _name(code: int) -> str:
    known = code in ReasonCode.__members__.values()
    return ReasonCode(code).name.lower().replace("_", " ") if known else f"reason {code:#x}"


def _said(code: int, why: str | None) -> str:
    """A reason code in words, and what the gateway says more."""
    return f"{_name(code)} ({why})" if why else _name(code)


def _check(code: int, what: str, why: str | None) -> None:
    if code >= _FAILURE:
        raise (Busy if code in _PASSING else InvalidRequest)(f"{what}: {_said(code, why)}")
