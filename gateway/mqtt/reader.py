"""Cuts a stream of bytes into MQTT packets, whatever the pieces in which it arrives.

The reader keeps at most one incomplete packet and never more bytes than have arrived: a length that a peer announces
allocates nothing. A packet over the limit is refused as soon as its length is read (0x95). Until a CONNECT has come
nothing else may (MQTT-3.1.0-1), which is judged by the very first byte, and a smaller limit holds; the CONNECT sets
``level`` for all that follows it, in the same piece too.

A server takes the stream in steps: a packet that those behind it may have to wait for is the last of its step, and a
SUBSCRIBE or UNSUBSCRIBE is one by itself, taken only when it has its turn. Waiting packets stay bytes, which is less
work and several times less memory than packet objects.

Invariants: the packets, and the error that ends them, do not depend on how the stream was cut; after an error
the reader is not used again. Time is linear in the bytes received, also where a long packet comes byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.mqtt.codec import decode, decode_publish
from gateway.mqtt.connect_codec import level_asked
from gateway.mqtt.packets import Connect, Packet, Puback
from gateway.mqtt.primitives import ANY_NUMBER
from gateway.mqtt.reason_codes import MalformedPacket, PacketError, ProtocolViolation, ReasonCode

__all__ = ["MalformedPacket", "PacketReader", "ProtocolViolation"]

_CONNECT: Final = 0x10
_PUBLISH: Final = 0x30
_PUBACK: Final = 0x40
_WITH_FILTERS: Final = frozenset({0x80, 0xA0})
"""SUBSCRIBE, UNSUBSCRIBE: the upper half of their first byte."""
_ENDS_STEP: Final = frozenset({_CONNECT, *_WITH_FILTERS, 0xF0})
"""And CONNECT, AUTH."""


class PacketReader:
    """The packets of one direction of one connection.

    Attributes:
        level: protocol level, 0 until a CONNECT has come; of a wrong one too, where it can be read, so that the client
            can be told. A client, which sends the CONNECT, sets it itself.
        packet_bytes_max: the largest packet taken after the CONNECT, fixed header included.
        connect_bytes_max: the largest CONNECT, and the largest packet of a client that has still to prove who it is.
        filters_max: how many filters of a packet are taken; of more the packet has one more, and the rest is not read.
        is_proving: whether the client has still to prove who it is: its CONNECT named an authentication method, and the
            server has not accepted it.
        before_damage: after an error, the good packets of the same piece or step.
        has_more: whether the last step has left something for the next.
        wants_turn: whether that begins with a SUBSCRIBE or UNSUBSCRIBE.
    """

    __slots__ = (
        "_left",
        "_left_at",
        "_needed",
        "_rest",
        "before_damage",
        "connect_bytes_max",
        "filters_max",
        "has_more",
        "is_proving",
        "level",
        "packet_bytes_max",
        "wants_turn",
    )

    def __init__(
        self, packet_bytes_max: int, connect_bytes_max: int | None = None, filters_max: int = ANY_NUMBER
    ) -> None:
        self.packet_bytes_max = packet_bytes_max
        self.connect_bytes_max = packet_bytes_max if connect_bytes_max is None else connect_bytes_max
        self.filters_max = filters_max
        self.level = 0
        self.is_proving = False
        self.before_damage: Sequence[Packet] = ()
        self.has_more = self.wants_turn = False
        self._left = b""  # what a step has left, from _left_at on
        self._left_at = 0
        self._rest: bytearray | None = None
        self._needed = 0  # size of the packet that _rest begins with, 0 while that is not known

    @property
    def pending(self) -> int:
        """Bytes held: of a packet that is not complete, or left by a step."""
        return len(self._rest) if self._rest is not None else len(self._left) - self._left_at

    def receive(self, data: bytes) -> list[Packet]:
        """All packets that ``data`` completes, in order.

        Raises ``MalformedPacket`` or ``ProtocolViolation``; the packets before the bad one are in ``before_damage``.
        """
        packets = self.step(data)
        while self.has_more:
            try:
                packets += self.step(b"", has_turn=True)
            except PacketError:
                self.before_damage = [*packets, *self.before_damage]
                raise
        return packets

    def keep(self, data: bytes) -> None:
        """Adds bytes without looking at them: the next step will."""
        held = self._left[self._left_at :] if self._rest is None else bytes(self._rest)
        self._left, self._left_at, self._rest, self.has_more = held + data, 0, None, True

    def step(self, data: bytes, *, has_turn: bool = False) -> list[Packet]:
        """The next packets of what was left and ``data``. ``has_turn``: the first may be one that wants its turn.
        Raises as ``receive`` does."""
        at, rest = 0, self._rest
        if self.has_more:
            if data:
                self.keep(data)
            data, at = self._left, self._left_at
            self._left, self._left_at, self.has_more, self.wants_turn = b"", 0, False, False
        elif rest is not None:
            rest += data
            if len(rest) < self._needed:
                return []
            data = bytes(rest)
            self._rest = None
        packets: list[Packet] = []
        try:
            at = self._cut(data, at, packets, has_turn)
        except PacketError:
            self.before_damage = packets
            raise
        if self.has_more:
            # the front is let go as soon as it is the larger half, so that all of it is linear work
            self._left, self._left_at = (data[at:], 0) if at * 2 > len(data) else (data, at)
        elif at < len(data):
            self._rest = bytearray(data[at:] if at else data)
        return packets

    def _cut(self, data: bytes, at: int, packets: list[Packet], has_turn: bool) -> int:
        """Adds the complete packets of ``data`` from ``at`` on to ``packets``, up to the end of the step; returns where
        the next or an incomplete one begins."""
        end, level = len(data), self.level
        limit = self.packet_bytes_max if level and not self.is_proving else self.connect_bytes_max
        self._needed = 0
        while end - at > 1:
            first, size, body = data[at], data[at + 1], at + 2
            if not level:
                _expect_connect(first)
            if size > 127:
                size, body = _long_length(data, body, end, size & 127)
                if size < 0:
                    break
            stop = body + size
            if stop - at > limit:
                raise ProtocolViolation(
                    f"a packet of {stop - at} bytes; the limit is {limit}", ReasonCode.PACKET_TOO_LARGE
                )
            if stop > end:
                self._needed = stop - at
                break
            if first & 0xF0 == _PUBLISH:
                packets.append(decode_publish(first, data, body, stop, level))
            elif first == _PUBACK and size == 2 and (data[body] or data[body + 1]):
                packets.append(Puback(data[body] << 8 | data[body + 1]))
            elif first & 0xF0 in _WITH_FILTERS and not has_turn:
                self.has_more = self.wants_turn = True
                return at
            else:
                has_turn = False
                if not level:
                    self.level = level_asked(first, data[body:stop])
                packet = decode(first, data[body:stop], level, self.filters_max)
                packets.append(packet)
                if not level:
                    assert type(packet) is Connect
                    level = self.level = packet.level
                    self.is_proving = packet.properties.authentication_method is not None
                    if not self.is_proving:
                        limit = self.packet_bytes_max
                if stop < end and first & 0xF0 in _ENDS_STEP:
                    self.has_more = True
                    return stop
            at = stop
        if at < end and not level:
            _expect_connect(data[at])
        return at


def _expect_connect(first: int) -> None:
    if first & 0xF0 != _CONNECT:
        raise ProtocolViolation("the first packet is no CONNECT (MQTT-3.1.0-1)")


def _long_length(data: bytes, at: int, end: int, value: int) -> tuple[int, int]:
    """A remaining length of more than one byte whose first seven bits are ``value`` and whose others begin at ``at``.

    Returns the length and the place after it; -1 if there is more of it to come.
    """
    for shift in (7, 14, 21):
        if at >= end:
            return -1, at
        more = data[at]
        at += 1
        value |= (more & 127) << shift
        if more < 128:
            if not more:
                raise MalformedPacket("the remaining length is longer than it must be (MQTT-1.5.5-1)")
            return value, at
    raise MalformedPacket("the remaining length has more than four bytes (MQTT-1.5.5-1)")
