"""One connection's protocol state: which packets may come when, what a topic alias stands for, and how the
connection ends.

The rules are a table: before CONNECT only CONNECT may come (MQTT-3.1.0-1), after it everything that a client may
send but a second CONNECT (MQTT-3.1.0-2), and AUTH only where an authentication method was agreed (MQTT-4.12.0-6),
which is never yet. ``receive`` gives the packets that may be carried out, in order, and at most one *fault* after
them: the reason code with which the connection ends (F13: other connections never notice).

How it ends depends on the version and on how far it came: before the CONNACK an MQTT 5 client gets a CONNACK with
the reason, an older one its return code if there is one for it (MQTT-3.2.2-6), and nothing at all where the CONNECT
could not be understood; afterwards an MQTT 5 client gets a DISCONNECT (MQTT-3.14.0-1), an older one just the close.
Pure: bytes in, packets out, bytes out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import MalformedPacket, PacketReader, ProtocolViolation

PROTOCOL_ERROR: Final = 0x82
UNSUPPORTED_VERSION: Final = 0x84
TOPIC_ALIAS_INVALID: Final = 0x94
NOT_FOUND: Final = 0x11
V5: Final = 5

_ALLOWED_FIRST: Final = frozenset({Connect})
_ALLOWED_LATER: Final = frozenset(
    {Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect}
)

# MQTT 5 reason code -> return code of an older CONNACK. What is not here closes without a CONNACK.
RETURN_CODES: Final = {
    0x84: 0x01,  # unacceptable protocol version
    0x85: 0x02,  # identifier rejected
    0x88: 0x03,  # server unavailable
    0x89: 0x03,
    0x97: 0x03,
    0x86: 0x04,  # bad user name or password
    0x87: 0x05,  # not authorised
}

# Reason codes that a server's DISCONNECT may carry (MQTT-3.14.2-1).
_DISCONNECT_REASONS: Final = frozenset(
    {0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)}
)


class Received(NamedTuple):
    """What a chunk of bytes held: packets to carry out, then the reason to close for, if any."""

    packets: list[Packet]
    fault: int | None


class Terms(NamedTuple):
    """What the server grants with a CONNACK. ``None``: not said, because it is what the client asked for."""

    session_present: bool
    assigned_client_id: str | None
    keep_alive_s: int | None
    expiry_s: int | None
    receive_max: int
    packet_bytes_max: int
    topic_alias_max: int


class Connection:
    """The protocol state of one connection; ``level`` is 0 until its CONNECT has come."""

    __slots__ = ("_aliases", "_is_accepted", "_packet_bytes_max", "_reader", "level")

    def __init__(self, connect_bytes_max: int, packet_bytes_max: int) -> None:
        self._reader = PacketReader(connect_bytes_max)
        self._packet_bytes_max = packet_bytes_max
        self._aliases: dict[int, str] | None = None
        self._is_accepted = False
        self.level = 0

    @property
    def is_inside_packet(self) -> bool:
        """Whether the bytes so far end within a packet, so that the next ones must go through ``receive``."""
        return self._reader.pending > 0

    # ------------------------------------------------------------ in

    def receive(self, data: bytes) -> Received:
        """The packets that these bytes complete."""
        fault: int | None = None
        try:
            packets = self._reader.receive(data)
        except (MalformedPacket, ProtocolViolation) as error:
            packets, fault = error.packets, error.reason_code
        for at, packet in enumerate(packets):
            refused = self._judge(packet)
            if refused:
                return Received(packets[:at], refused)
        return Received(packets, fault)

    def _judge(self, packet: Packet) -> int:
        allowed = _ALLOWED_LATER if self.level else _ALLOWED_FIRST
        if type(packet) not in allowed:
            return PROTOCOL_ERROR
        if type(packet) is Connect:
            self.level = packet.level
            self._reader.packet_bytes_max = self._packet_bytes_max
        return 0

    def name_of(self, packet: Publish, alias_max: int) -> str | int:
        """The topic name that a PUBLISH means, by its alias if need be; a reason code if its alias means nothing."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic or PROTOCOL_ERROR
        if not 1 <= alias <= alias_max:  # (MQTT-3.3.2-7, -8)
            return TOPIC_ALIAS_INVALID
        if self._aliases is None:
            self._aliases = {}
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet.topic
        return self._aliases.get(alias, PROTOCOL_ERROR)

    # ------------------------------------------------------------ out

    def accept(self, terms: Terms) -> bytes:
        """The CONNACK of success, with every limit that is enforced (MQTT-3.2.2-9, -21, -22)."""
        self._is_accepted = True
        if self.level < V5:
            return encode(Connack(terms.session_present and self.level > 3, 0), self.level)
        properties = Properties(
            session_expiry_interval=terms.expiry_s,
            receive_maximum=terms.receive_max,
            maximum_packet_size=terms.packet_bytes_max,
            assigned_client_identifier=terms.assigned_client_id,
            topic_alias_maximum=terms.topic_alias_max or None,
            shared_subscription_available=0,
            server_keep_alive=terms.keep_alive_s,
        )
        return encode(Connack(terms.session_present, 0, properties), self.level)

    def refuse(self, reason: int) -> bytes:
        """The CONNACK of a refusal, or nothing where there is none for it."""
        if self.level >= V5:
            return encode(Connack(False, reason), self.level)
        code = RETURN_CODES.get(reason)
        return b"" if code is None else encode(Connack(False, code), self.level or 4)

    def farewell(self, reason: int) -> bytes:
        """What is sent before closing for a reason."""
        if not self._is_accepted:
            return self.refuse(reason) if self.level or reason == UNSUPPORTED_VERSION else b""
        if self.level < V5:
            return b""
        return encode(Disconnect(reason if reason in _DISCONNECT_REASONS else 0x80), self.level)

    def suback(self, packet: Subscribe, codes: list[int]) -> bytes:
        """One code per filter, in order (MQTT-3.9.3-1); older versions know only one kind of failure."""
        if self.level < V5:
            codes = [code if code < 0x80 else 0x80 for code in codes]
        return encode(Suback(packet.packet_id, tuple(codes)), self.level)

    def unsuback(self, packet: Unsubscribe, found: list[bool]) -> bytes:
        """One code per filter, in order, for MQTT 5 (MQTT-3.11.3-1)."""
        codes = tuple([0 if one else NOT_FOUND for one in found]) if self.level >= V5 else ()
        return encode(Unsuback(packet.packet_id, codes), self.level)
