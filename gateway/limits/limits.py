"""Limits on one packet and one name, and on the time for which a client may read nothing.

The codec accepts any packet that the standard allows; these limits say how much of it this gateway accepts. Their work
is no more than the packet's own. ``gateway/limits/quotas.py`` counts each limit that is met.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from gateway.limits.quotas import Quotas
from gateway.mqtt.connection import V5, Connection
from gateway.mqtt.packets import Connect, Packet, Pingreq, Pingresp, Subscribe, Unsubscribe
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told
from gateway.settings import VERSIONS, GatewaySettings

SWEEP_S: Final = 5.0
FILTER_BYTES: Final = 512
"""What a filter that waits for a broker takes beside its characters, about."""
_CONNECT: Final = 0x10
_BROKEN: Final = (ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR)
_BARE: Final = (Pingreq, Pingresp)


_NOT_MQTT: Final = "what came first is no CONNECT"
# How a stream begins -> what is probably spoken there.
_BEGINNINGS: Final = (
    (b"\x16\x03", "TLS"),
    (b"GET ", "HTTP"),
    (b"HEAD ", "HTTP"),
    (b"POST ", "HTTP"),
    (b"\r\n\r\n\x00\r\nQUIT\n", "the PROXY protocol"),
    (b"PROXY ", "the PROXY protocol"),
    (b"SSH-", "SSH"),
)


def beginning(chunk: bytes) -> str:
    """The reason why the first bytes of a connection are no MQTT, with their probable protocol."""
    spoken = next((name for first, name in _BEGINNINGS if chunk.startswith(first)), "")
    return f"{_NOT_MQTT}; the client seems to speak {spoken}" if spoken else _NOT_MQTT


def size_of(packet: Subscribe | Unsubscribe) -> int:
    """About how many bytes it takes until it is answered."""
    filters = packet.filters if isinstance(packet, Unsubscribe) else [one.filter for one in packet.subscriptions]
    return sum([len(filter) + FILTER_BYTES for filter in filters])


class Kept(Protocol):
    """Options with which a message is to be published (``gateway.sessions.session_state.Will``)."""

    @property
    def qos(self) -> int: ...

    @property
    def retain(self) -> bool: ...


class Limits:
    """Limits on packets and names."""

    __slots__ = (
        "_connect_bytes",
        "_filters",
        "_keep_alive_s",
        "_keep_alive_s_max",
        "_levels",
        "_packet_bytes",
        "_pairs",
        "_pairs_bytes",
        "_qos",
        "_quotas",
        "_retains",
        "_versions",
    )

    def __init__(self, settings: GatewaySettings, quotas: Quotas) -> None:
        self._quotas = quotas
        self._connect_bytes = settings.connect_packet_bytes_max
        self._packet_bytes = settings.packet_bytes_max
        self._filters = settings.filters_per_packet_max
        self._levels = settings.topic_levels_max
        self._pairs = settings.user_properties_max
        self._pairs_bytes = settings.user_properties_bytes_max
        self._qos = settings.qos_max
        self._retains = settings.retained_messages
        self._versions = frozenset([VERSIONS[one] for one in settings.protocol_versions])
        self._keep_alive_s_max = settings.keep_alive_s_max
        self._keep_alive_s = settings.keep_alive_s_max if settings.keep_alive_over_max == "refuse" else 0

    def connection(self) -> Connection:
        """The protocol state of a new connection, which reads no more of a packet than may be in it."""
        return Connection(self._connect_bytes, self._packet_bytes, self._filters)

    def unsupported(self, level: int, keep_alive_s: int, will: Kept | None) -> Reason:
        """Why the gateway is set to refuse clients of this protocol level with this keep-alive and will, 0 if it is
        not (MQTT-3.2.2-12, -13)."""
        if level not in self._versions:
            return Told(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "protocol_versions does not have this one")
        if self._keep_alive_s and level < V5 and not 0 < keep_alive_s <= self._keep_alive_s:
            return self._quotas.refuse("keep_alive_s_max")
        return 0 if will is None else self.beyond(will.qos, retain=will.retain, is_v5=level >= V5)

    def keep_alive_s(self, asked_s: int, is_v5: bool) -> int:
        """The keep-alive that counts: an older client cannot be told another one than it asked for."""
        cap = self._keep_alive_s_max
        return min(asked_s or cap, cap) if cap and is_v5 else asked_s

    def beyond(self, qos: int, *, retain: bool, is_v5: bool) -> Reason:
        """Why a message is not taken with this QoS and RETAIN, 0 if it is. A client before MQTT 5, which cannot know,
        has it taken as one that is not to be retained."""
        if qos > self._qos:
            return self._quotas.refuse("qos_max")
        if retain and is_v5 and not self._retains:
            return Told(ReasonCode.RETAIN_NOT_SUPPORTED, "retained_messages is off")
        return 0

    def broken_by(self, packet: Packet) -> Reason:
        """The reason code of the limit that a packet breaks, 0 if it breaks none."""
        if isinstance(packet, _BARE):
            return 0
        if packet.properties is not NO_PROPERTIES:
            broken = self._too_many_pairs(packet.properties)
            if broken:
                return broken
        if isinstance(packet, Subscribe):
            count = len(packet.subscriptions)
        elif isinstance(packet, Unsubscribe):
            count = len(packet.filters)
        elif isinstance(packet, Connect) and packet.will is not None:
            return self._too_many_pairs(packet.will.properties)
        else:
            return 0
        return self._quotas.refuse("filters_per_packet_max") if count > self._filters else 0

    def _too_many_pairs(self, properties: Properties) -> Reason:
        pairs = properties.user_properties
        if not pairs:
            return 0
        if len(pairs) > self._pairs:
            return self._quotas.refuse("user_properties_max")
        size = sum([len(name.encode()) + len(value.encode()) for name, value in pairs])
        return self._quotas.refuse("user_properties_bytes_max") if size > self._pairs_bytes else 0

    def too_deep(self, name: str) -> Reason:
        """The reason code for too many levels of a topic name or filter, else 0."""
        return self._quotas.refuse("topic_levels_max") if name.count("/") >= self._levels else 0

    def fault(self, reason: int, has_begun: bool, first: bytes = b"") -> Reason:
        """A fault of the protocol, by the name of the limit if it is one. ``has_begun``: after the CONNECT. ``first``:
        how the stream begins, if it is over already."""
        if first and first[0] != _CONNECT and reason in _BROKEN:  # a record of TLS begins with 0x16
            return Told(reason, beginning(first))
        if reason == ReasonCode.PACKET_TOO_LARGE:
            return self._quotas.refuse("packet_bytes_max" if has_begun else "connect_packet_bytes_max")
        if reason == ReasonCode.TOPIC_ALIAS_INVALID:
            return self._quotas.refuse("topic_alias_max")
        if reason == ReasonCode.QUOTA_EXCEEDED:  # a property block that is too long to be looked at
            return self._quotas.refuse("user_properties_bytes_max")
        return reason


class Stallable(Protocol):
    """A connection that may stop taking what it is sent (``gateway.connections.device.Device``). ``full_since``: -1
    while it takes something."""

    full_since: float

    @property
    def is_full(self) -> bool: ...

    def drop(self, why: Reason) -> None: ...


class Stalls:
    """Finds clients whose output has been full, without a break, for too long."""

    def __init__(self, settings: GatewaySettings, quotas: Quotas) -> None:
        self._stalled_s = settings.stalled_s_max
        self._quotas = quotas
        self._due = 0.0

    def tick(self, devices: Iterable[Stallable], now: float) -> None:
        """Drops them; a farewell would find no room."""
        if not self._stalled_s or now < self._due:
            return
        self._due = now + min(SWEEP_S, self._stalled_s / 2)
        for device in list(devices):
            if not device.is_full:
                device.full_since = -1.0
            elif device.full_since < 0:
                device.full_since = now
            elif now - device.full_since >= self._stalled_s:
                device.drop(self._quotas.refuse("stalled_s_max"))
