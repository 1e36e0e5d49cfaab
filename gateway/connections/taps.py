"""Follows the packets of single clients for an operator (``penstock client watch``).

A *tap* reads beside its device: the same bytes, cut once more into packets, of which it keeps the type, packet id,
name, QoS, size of the payload and reason codes; never a payload, user name or password. It keeps the last
``LINES_MAX``. An operator who polls too seldom misses some; gaps in the numbers show that. A tap ends when no operator
asks any more. A device without one pays for a comparison per chunk. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from gateway.mqtt.packets import Packet, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from gateway.mqtt.reader import PacketReader
from gateway.mqtt.reason_codes import PacketError
from penstock.protocol.requests.sessions import SeenPacket

LINES_MAX: Final = 2_000
TAPS_MAX: Final = 16
"""Maximum number of clients that one gateway follows; the one least recently asked for gives way."""
ASKED_WITHIN_S: Final = 15.0
_NAME_CHARACTERS_MAX: Final = 200
_CODES_MAX: Final = 20
_PACKET_BYTES_MAX: Final = 268_435_460  # the device has judged it
_UNREADABLE: Final = "unreadable"


class Lines:
    """The last packets of one client, whatever connections they went over. ``last``: the number of the last."""

    def __init__(self) -> None:
        self._kept: deque[SeenPacket] = deque(maxlen=LINES_MAX)
        self.last = 0

    def add(self, at_ms: int, is_sent: bool, kind: str, **more: object) -> None:
        """Adds a packet; above ``LINES_MAX`` the oldest is gone."""
        self.last += 1
        self._kept.append(SeenPacket(self.last, at_ms, is_sent, kind, **more))  # type: ignore[arg-type]

    def after(self, number: int) -> tuple[SeenPacket, ...]:
        """The kept lines with a higher number; all if there is no such number yet, as after a restart of the
        gateway."""
        if number > self.last:
            number = 0
        return tuple([one for one in self._kept if one.number > number])


class Tap:
    """A follower of the packets of one connection.

    Args:
        level: the protocol level of the connection.
        lines: where they are kept.
        now: monotonic seconds.

    Attributes:
        lines: the same.
        asked_at: when an operator last asked for them.
    """

    def __init__(self, level: int, lines: Lines, now: float) -> None:
        self._readers: list[PacketReader | None] = [_reader(level), _reader(level)]
        self._is_in_step = False
        self.lines = lines
        self.asked_at = now

    def came(self, chunk: bytes, unfinished: int, now: float, now_ms: int) -> bool:
        """Follows bytes from the client. ``unfinished``: bytes of a packet that came before the tap was there and is
        not complete: such a packet is passed over. Returns whether the tap is still wanted."""
        if self._is_in_step or not unfinished:
            self._is_in_step = True
            self._follow(chunk, 0, now_ms)
        return now - self.asked_at <= ASKED_WITHIN_S

    def went(self, data: bytes, now: float, now_ms: int) -> bool:
        """Follows whole packets to the client. Returns whether the tap is still wanted."""
        self._follow(data, 1, now_ms)
        return now - self.asked_at <= ASKED_WITHIN_S

    def _follow(self, data: bytes, way: int, now_ms: int) -> None:
        reader = self._readers[way]
        if reader is None:
            return
        packets: list[Packet]
        try:
            packets = reader.receive(data)
        except PacketError:
            self._readers[way] = None
            packets = list(reader.before_damage)
        for packet in packets:
            self.lines.add(now_ms, way == 1, type(packet).__name__.upper(), **_told(packet))
        if self._readers[way] is None:
            self.lines.add(now_ms, way == 1, _UNREADABLE)


def _reader(level: int) -> PacketReader:
    reader = PacketReader(_PACKET_BYTES_MAX)
    reader.level = level
    return reader


def _told(packet: Packet) -> dict[str, object]:
    told: dict[str, object] = {"packet_id": getattr(packet, "packet_id", 0)}
    if isinstance(packet, Publish):
        alias = packet.properties.topic_alias
        told["name"] = (packet.topic or f"alias {alias}")[:_NAME_CHARACTERS_MAX]
        told["qos"], told["payload_bytes"] = packet.qos, len(packet.payload)
        told["retain"], told["dup"] = packet.retain, packet.dup
    elif isinstance(packet, Subscribe):
        told["name"] = " ".join([one.filter for one in packet.subscriptions[:_CODES_MAX]])[:_NAME_CHARACTERS_MAX]
        told["qos"] = max([one.qos for one in packet.subscriptions])
    elif isinstance(packet, Unsubscribe):
        told["name"] = " ".join(packet.filters[:_CODES_MAX])[:_NAME_CHARACTERS_MAX]
    elif isinstance(packet, Suback | Unsuback):
        told["reasons"] = tuple(packet.reason_codes[:_CODES_MAX])
    elif code := getattr(packet, "reason_code", 0):
        told["reasons"] = (code,)
    return told


class Tapped(Protocol):
    """A connection that can be followed.

    Attributes:
        tap: its follower, if there is one.
    """

    tap: Tap | None

    @property
    def level(self) -> int:
        """Its protocol level."""
        ...


class Taps:
    """The clients that one gateway follows."""

    def __init__(self) -> None:
        self._lines: dict[str, Lines] = {}  # the one least recently asked for first
        self._asked_at: dict[str, float] = {}

    def ask(self, client: str, device: Tapped, after: int, now: float) -> tuple[SeenPacket, ...]:
        """The packets of a client after this number. From the first question on it is followed, and so is a connection
        that it has made since the last one."""
        for other, at in list(self._asked_at.items()):
            if now - at > ASKED_WITHIN_S:
                self._forget(other)
        lines = self._lines.pop(client, None) or Lines()
        if len(self._lines) >= TAPS_MAX:
            self._forget(next(iter(self._lines)))
        self._lines[client], self._asked_at[client] = lines, now
        tap = device.tap
        if tap is None or tap.lines is not lines:
            tap = device.tap = Tap(device.level, lines, now)
        tap.asked_at = now
        return lines.after(after)

    def _forget(self, client: str) -> None:
        """Its tap ends by itself, at the first packet that it is not asked for."""
        self._lines.pop(client, None)
        self._asked_at.pop(client, None)
