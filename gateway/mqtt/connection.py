"""One connection's protocol state: which packets may come when, what a topic alias stands for, and how the
connection ends.

The rules are a table: before CONNECT only CONNECT may come (MQTT-3.1.0-1), after it everything that a client may
send but a second CONNECT (MQTT-3.1.0-2), and AUTH only where the CONNECT named an authentication method
(MQTT-4.12.0-7), always the same one (MQTT-4.12.0-5, 4.12.1-1); such a client may send nothing else but DISCONNECT until
it has its CONNACK (MQTT-3.1.2-30). ``receive`` gives the packets that may be carried out, in order, and at most one
*fault* after them: the reason code with which the connection ends (F13: other connections never notice).

How it ends depends on the version and on how far it came: before the CONNACK an MQTT 5 client gets a CONNACK with
the reason, an older one its return code if there is one for it (MQTT-3.2.2-6), and nothing at all where the CONNECT
does not say what it speaks; afterwards an MQTT 5 client gets a DISCONNECT (MQTT-3.14.0-1), an older one just the close.
Pure: bytes in, packets out, bytes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.mqtt.answers import PUBACK, refusal, with_properties
from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    LEVEL_3_1,
    Auth,
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
from gateway.mqtt.primitives import ANY_NUMBER
from gateway.mqtt.properties import NO_PROPERTIES, Properties, encode_properties, property_block
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import ALLOWED, PacketError, Reason, ReasonCode, Told, code_of
from topicmap.names import NAME_BYTES_MAX, SHORT_BYTES_MAX

V5: Final = 5

_ALLOWED_FIRST: Final = frozenset({Connect})
_ALLOWED_LATER: Final = frozenset(
    {Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect}
)
_ALLOWED_PROVING: Final = frozenset({Auth, Disconnect})
_ALLOWED_PROVEN: Final = _ALLOWED_LATER | {Auth}

# MQTT 5 reason code -> return code of an older CONNACK. What is not here closes without a CONNACK.
RETURN_CODES: Final[dict[int, int]] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 0x01,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 0x02,
    ReasonCode.SERVER_UNAVAILABLE: 0x03,
    ReasonCode.SERVER_BUSY: 0x03,
    ReasonCode.QUOTA_EXCEEDED: 0x03,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 0x03,
    ReasonCode.USE_ANOTHER_SERVER: 0x03,
    ReasonCode.SERVER_MOVED: 0x03,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 0x04,
    ReasonCode.NOT_AUTHORIZED: 0x05,
    ReasonCode.QOS_NOT_SUPPORTED: 0x05,
}
LEVEL: Final = "penstock-level"
"""The user property with the level that a message has reached, and that says a client gets it."""
ANY_SIZE: Final = 1 << 30
"""What a client takes that does not say: more than any packet has."""
WHY_CHARS_MAX: Final = 1000
"""A reason string may quote another client's text: it is cut at 65,535 bytes, the longest string."""
_TELLS_LEVEL: Final = ((LEVEL, "true"),)
_ELSEWHERE: Final = frozenset({ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED})
_CONNACK: Final = 2
_DISCONNECT: Final = 14


class Received(NamedTuple):
    """Outcome of a step of the stream: packets to carry out, then the reason to close for, if any."""

    packets: list[Packet]
    fault: int | None


class Terms(NamedTuple):
    """Terms that the server grants with a CONNACK. ``None``: not said, because it is what the client asked for."""

    session_present: bool
    assigned_client_id: str | None
    keep_alive_s: int | None
    expiry_s: int | None
    receive_max: int
    packet_bytes_max: int
    topic_alias_max: int
    response_information: str | None = None
    has_shares: bool = True
    tells_level: bool = False
    qos_max: int = 2
    retains: bool = True


class Connection:
    """The protocol state of one connection; ``level`` is 0 until its CONNECT has come, ``_method`` the authentication
    method that it named. ``tells_level``: acknowledgements say the level that a message has reached."""

    __slots__ = (
        "_accepts_bytes_max",
        "_aliases",
        "_asked_to_last",
        "_is_accepted",
        "_is_ahead",
        "_method",
        "_reader",
        "_wants_problems",
        "level",
        "tells_level",
    )

    def __init__(self, connect_bytes_max: int, packet_bytes_max: int, filters_max: int = ANY_NUMBER) -> None:
        self._reader = PacketReader(packet_bytes_max, connect_bytes_max, filters_max)
        self._aliases: dict[int, str] | None = None
        self._is_accepted = False
        self._is_ahead = False  # whether what the last step has left came before the client was accepted
        self._asked_to_last = False  # whether its CONNECT asked for a session that outlives it
        self._accepts_bytes_max = ANY_SIZE
        self._wants_problems = True
        self._method: str | None = None
        self.level = 0
        self.tells_level = False

    @property
    def unfinished_bytes(self) -> int:
        """The number of held bytes, of an incomplete packet or left by a step, so that the next ones must go
        through ``receive`` or ``keep``."""
        return self._reader.pending

    @property
    def has_more(self) -> bool:
        """Whether the last step has left something behind."""
        return self._reader.has_more

    @property
    def wants_turn(self) -> bool:
        """Whether that begins with a SUBSCRIBE or UNSUBSCRIBE."""
        return self._reader.wants_turn

    # ------------------------------------------------------------ in

    def receive(self, data: bytes, *, has_turn: bool = False) -> Received:
        """The next step (``gateway/mqtt/reader.py``) of what was left and these bytes."""
        fault: int | None = None
        try:
            packets = self._reader.step(data, has_turn=has_turn)
        except PacketError as error:
            packets, fault = list(self._reader.before_damage), error.reason_code
            if not packets and self._reader.level >= V5:
                self.level = self._reader.level  # also of a wrong CONNECT (MQTT 5, 4.13.2)
        for at, packet in enumerate(packets):
            refused = self._judge(packet)
            if refused:
                return Received(packets[:at], refused)
        self._is_ahead = self._reader.has_more and (self._is_ahead or not self._is_accepted)
        return Received(packets, fault)

    def keep(self, data: bytes) -> None:
        """Bytes for a later step."""
        self._reader.keep(data)

    def _judge(self, packet: Packet) -> int:
        if type(packet) not in self._allowed():
            return ReasonCode.PROTOCOL_ERROR
        if type(packet) is Publish:  # only a server's PUBLISH has subscription identifiers (MQTT-3.3.4-6)
            return ReasonCode.PROTOCOL_ERROR if packet.properties.subscription_identifiers else 0
        if type(packet) is Connect:
            self.level = packet.level
            self._accepts_bytes_max = packet.properties.maximum_packet_size or self._accepts_bytes_max
            self._wants_problems = packet.properties.request_problem_information != 0
            self._method = packet.properties.authentication_method
            self._asked_to_last = bool(packet.properties.session_expiry_interval)
        if type(packet) is Disconnect and packet.properties.session_expiry_interval and not self._asked_to_last:
            return ReasonCode.PROTOCOL_ERROR  # whatever was granted (MQTT 5, 3.14.2.2.2)
        if type(packet) is Auth and packet.properties.authentication_method != self._method:
            return ReasonCode.PROTOCOL_ERROR
        return 0

    def _allowed(self) -> frozenset[type]:
        if not self.level:
            return _ALLOWED_FIRST
        if self._method is None:
            return _ALLOWED_LATER
        return _ALLOWED_PROVEN if self._is_accepted and not self._is_ahead else _ALLOWED_PROVING

    def name_of(self, packet: Publish, alias_max: int) -> str | int:
        """The topic name that a PUBLISH means, by its alias if need be; a reason code if its alias means nothing, or if
        the names with an alias take more than one name may, and 1,024 bytes for each alias that there may be."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic or ReasonCode.PROTOCOL_ERROR
        if not 1 <= alias <= alias_max:  # (MQTT-3.3.2-7, -8)
            return ReasonCode.TOPIC_ALIAS_INVALID
        if self._aliases is None:
            self._aliases = {}
        if packet.topic:
            known = self._aliases
            known[alias] = packet.topic
            room = NAME_BYTES_MAX + alias_max * SHORT_BYTES_MAX
            if len(packet.topic) > SHORT_BYTES_MAX // 4 and sum([len(name.encode()) for name in known.values()]) > room:
                return ReasonCode.TOPIC_ALIAS_INVALID
            return packet.topic
        return self._aliases.get(alias, ReasonCode.PROTOCOL_ERROR)

    @property
    def takes_any_size(self) -> bool:
        """Whether its client has named no size beyond which it takes no packet."""
        return self._accepts_bytes_max == ANY_SIZE

    # ------------------------------------------------------------ out

    def accept(self, terms: Terms, proof: bytes | None = None) -> bytes:
        """The CONNACK of success: the client is accepted."""
        self.tells_level = terms.tells_level and self._wants_problems  # (MQTT-3.1.2-29)
        self._is_accepted = True
        self._reader.is_proving = False
        return self.welcome(terms, proof)

    def welcome(self, terms: Terms, proof: bytes | None = None) -> bytes:
        """That CONNACK, with every limit that is enforced (MQTT-3.2.2-9, -21, -22), and where the client has
        authenticated by a method with that (MQTT-4.12.0-5) and the server's last data, ``proof``. Nothing if the client
        takes no packet of that size (MQTT-3.1.2-24)."""
        said = b""
        if terms.tells_level and self._wants_problems:
            said = self._connack(terms, proof, _TELLS_LEVEL)
        return said or self._connack(terms, proof)  # (MQTT-3.2.2-20)

    def _connack(self, terms: Terms, proof: bytes | None, more: tuple[tuple[str, str], ...] = ()) -> bytes:
        if self.level < V5:
            return encode(Connack(terms.session_present and self.level > 3, 0), self.level)
        properties = Properties(
            session_expiry_interval=terms.expiry_s,
            receive_maximum=terms.receive_max,
            maximum_qos=terms.qos_max if terms.qos_max < 2 else None,
            retain_available=None if terms.retains else 0,
            maximum_packet_size=terms.packet_bytes_max,
            assigned_client_identifier=terms.assigned_client_id,
            topic_alias_maximum=terms.topic_alias_max or None,
            shared_subscription_available=None if terms.has_shares else 0,
            server_keep_alive=terms.keep_alive_s,
            response_information=terms.response_information,
            authentication_method=self._method,
            authentication_data=proof,
            user_properties=more,
        )
        return self._fitting(Connack(terms.session_present, 0, properties))

    def _fitting(self, packet: Packet) -> bytes:
        """A packet, or nothing if the client takes none of that size (MQTT-3.1.2-24)."""
        data = encode(packet, self.level)
        return data if len(data) <= self._accepts_bytes_max else b""

    def auth(self, reason: int, data: bytes, why: str = "") -> bytes:
        """An AUTH (MQTT-4.12.0-2, -5), or nothing if the client takes no packet of that size (MQTT-3.1.2-24)."""

        def made(why: str | None) -> bytes:
            properties = Properties(authentication_method=self._method, authentication_data=data, reason_string=why)
            return self._fitting(Auth(reason, properties))

        said = made(why) if why and self._wants_problems else b""  # (MQTT-3.1.2-29)
        return said or made(None)  # (MQTT-3.15.2-2)

    def refuse(self, reason: Reason, reference: str = "") -> bytes:
        """The CONNACK of a refusal, or nothing where there is none for it. ``reference``: another server, for a reason
        that sends the client there."""
        if self.level >= V5:
            return self._told(
                lambda properties: Connack(False, _legal(reason, _CONNACK), properties), reason, reference
            )
        code = RETURN_CODES.get(code_of(reason))
        return b"" if code is None else encode(Connack(False, code), self.level or 4)

    def farewell(self, reason: Reason, reference: str = "") -> bytes:
        """The packet that is sent before closing for a reason."""
        if not self._is_accepted:
            return (
                self.refuse(reason, reference)
                if self.level or reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
                else b""
            )
        if self.level < V5:
            return b""
        return self._told(lambda properties: Disconnect(_legal(reason, _DISCONNECT), properties), reason, reference)

    def _told(self, make: Callable[[Properties], Packet], reason: Reason, reference: str = "") -> bytes:
        """A packet with its reason string, if there is one and the packet is not too large with it (MQTT-3.2.2-19,
        3.9.2-1, 3.14.2-3), and the server to go to, if this is a reason to go; nothing if it is too large without."""
        server = reference or None if code_of(reason) in _ELSEWHERE else None
        said = b""
        if isinstance(reason, Told):
            why = reason.why if len(reason.why) <= WHY_CHARS_MAX else reason.why[: WHY_CHARS_MAX - 3] + "..."
            said = self._fitting(make(Properties(reason_string=why, server_reference=server)))
        if server and not said:
            said = self._fitting(make(Properties(server_reference=server)))
        return said or self._fitting(make(NO_PROPERTIES))

    def with_level(self, marks: list[bytes], level: str) -> list[bytes]:
        """These PUBACKs and PUBRECs, each with the level that its message has reached; as they are where the client
        takes no packets of that size (MQTT-3.4.2-3, 3.5.2-3)."""
        block = property_block(encode_properties(Properties(user_properties=((LEVEL, level),))))
        told = [mark and with_properties(mark, block) for mark in marks]
        return told if max(map(len, told), default=0) <= self._accepts_bytes_max else marks

    def refusal(self, mark: bytes, reason: Reason) -> bytes:
        """The PUBACK or PUBREC ``mark`` with a reason for not taking the message, and why, if that may be said
        (MQTT-3.4.2-2, 3.5.2-2)."""
        if not isinstance(reason, Told) or not self._wants_problems:
            return refusal(mark, code_of(reason))
        code, packet_id = reason.code, int.from_bytes(mark[2:4], "big")
        answer = Puback if mark[0] == PUBACK else Pubrec
        return self._told(lambda properties: answer(packet_id, code, properties), reason)

    def suback(self, packet: Subscribe, codes: list[int], why: str = "") -> bytes:
        """One code per filter, in order (MQTT-3.9.3-1). MQTT 3.1.1 knows only one kind of failure, and 3.1 none: there
        a refused filter is answered with the QoS that was asked for (its 3.8). Nothing if the client takes no packet of
        that size."""
        if self.level < V5:
            failed = [0x80 if self.level > LEVEL_3_1 else asked.qos for asked in packet.subscriptions]
            old = tuple([code if code < 0x80 else instead for code, instead in zip(codes, failed, strict=True)])
            return encode(Suback(packet.packet_id, old), self.level)
        reason: Reason = Told(0, why) if why and self._wants_problems else 0  # (MQTT-3.1.2-29)
        return self._told(lambda properties: Suback(packet.packet_id, tuple(codes), properties), reason)

    def unsuback(self, packet: Unsubscribe, found: list[bool]) -> bytes:
        """One code per filter, in order, for MQTT 5 (MQTT-3.11.3-1). Nothing if the client takes no packet of that
        size."""
        codes = (
            tuple([0 if one else int(ReasonCode.NO_SUBSCRIPTION_EXISTED) for one in found]) if self.level >= V5 else ()
        )
        return self._fitting(Unsuback(packet.packet_id, codes))


def _legal(reason: Reason, packet_type: int) -> int:
    """The reason, or *unspecified* where this packet may not carry it (MQTT-3.2.2-8, 3.14.2-1)."""
    code = code_of(reason)
    return code if code in ALLOWED[packet_type] else int(ReasonCode.UNSPECIFIED_ERROR)
