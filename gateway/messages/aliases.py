"""Topic aliases that the gateway makes: a client that takes them is sent a long topic name once per connection, and
then its number.

A delivery is encoded with its name, as for all (``gateway/messages/outgoing.py``), and it stays in flight in that form:
a resend goes to another connection, where no alias holds (MQTT-3.3.2-7), and so never uses one. Only the bytes that
leave now are rewritten. Numbers are given first come first served, up to the smaller of what the client takes
(MQTT-3.1.2-26, -27, 3.3.2-11) and ``topic_alias_sent_max``; names that come later go out in full, as do short ones, for
which a number saves nothing, and those of more than 1,024 bytes, which a connection would have to keep.

A ``PacketRun`` is shared, and so are its aliased forms: numbers belong to the feed, and a client that does not know one
of them yet gets the form that names each topic once more, which is right for all. So a run has at most two aliased
forms per number of aliases that clients take, however many subscribers there are. Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.messages.outgoing import AliasedPacketRun, PacketRun
from gateway.mqtt.primitives import encode_variable_integer
from topicmap.names import SHORT_BYTES_MAX

NAME_BYTES_MIN: Final = 8
"""Shorter names are sent as they are: an alias has three bytes, and three more when it is made."""
GROWTH_BYTES_MAX: Final = 8
"""An alias beside its name makes a packet longer by no more than this."""
_TOPIC_ALIAS: Final = b"\x23"

Numbers = dict[bytes, int]
"""Name -> its number, in the order of their making."""


def number_for(numbers: Numbers, name: bytes, limit: int) -> int:
    """The number of a name, given to it now if it has none; 0: it goes without."""
    number = numbers.get(name, 0)
    if not number and NAME_BYTES_MIN <= len(name) <= SHORT_BYTES_MAX and len(numbers) < limit:
        number = numbers[name] = len(numbers) + 1
    return number if number <= limit else 0


def rewritten(packet: bytes, name: bytes, number: int, *, is_named: bool) -> bytes:
    """An MQTT 5 PUBLISH that carries ``name``, with an alias beside the name or in its place."""
    at = 2
    while packet[at - 1] > 127:
        at += 1
    at += 2 + len(name)
    start = at + (2 if packet[0] & 0x06 else 0)  # where the properties' length stands
    size, shift, stop = packet[start] & 127, 7, start + 1
    while packet[stop - 1] > 127:
        size |= (packet[stop] & 127) << shift
        shift, stop = shift + 7, stop + 1
    shown = name if is_named else b""
    parts = (
        len(shown).to_bytes(2, "big"),
        shown,
        packet[at:start],
        encode_variable_integer(size + 3),
        _TOPIC_ALIAS,
        number.to_bytes(2, "big"),
        packet[stop:],
    )
    return b"".join((packet[:1], encode_variable_integer(sum(map(len, parts))), *parts))


def aliased_run(run: PacketRun, numbers: Numbers, limit: int) -> AliasedPacketRun:
    """A run as it goes to clients that take a number of aliases."""
    defines: dict[int, bytes] = {}
    naming: list[bytes] = []
    brief: list[bytes] = []
    for packet_id, made in run.blobs:
        packet, name = made.packet(packet_id), made.arrival.name_bytes
        number = number_for(numbers, name, limit)
        if not number:
            naming.append(packet)
            brief.append(packet)
            continue
        short = rewritten(packet, name, number, is_named=False)
        brief.append(short)
        if number in defines:
            naming.append(short)
        else:
            defines[number] = name
            naming.append(rewritten(packet, name, number, is_named=True))
    return AliasedPacketRun(defines, b"".join(naming), b"".join(brief), run.largest + GROWTH_BYTES_MAX)


class SentAliases:
    """Topic aliases that one connection's client knows."""

    __slots__ = ("_bytes_max", "_known", "_limit", "_numbers")

    def __init__(self, limit: int, bytes_max: int) -> None:
        """``bytes_max``: the largest packet that the client takes."""
        self._limit = limit
        self._bytes_max = bytes_max
        self._known: dict[int, bytes] = {}
        self._numbers: Numbers = {}

    def shorten(self, packet: bytes, name: bytes) -> bytes:
        """A delivery as it goes to this client."""
        number = number_for(self._numbers, name, self._limit)
        if not number:
            return packet
        if self._known.get(number) == name:
            return rewritten(packet, name, number, is_named=False)
        if len(packet) + GROWTH_BYTES_MAX > self._bytes_max:
            return packet
        self._known[number] = name
        return rewritten(packet, name, number, is_named=True)

    def run(self, run: PacketRun, numbers: Numbers) -> bytes:
        """A run as it goes to this client; ``numbers`` are the feed's."""
        aliased = run.aliased.get(self._limit)
        if aliased is None:
            aliased = run.aliased[self._limit] = aliased_run(run, numbers, self._limit)
        if aliased.largest > self._bytes_max:
            return run.data
        defines, known = aliased.defines, self._known
        if all([known.get(number) == name for number, name in defines.items()]):
            return aliased.brief
        known.update(defines)
        return aliased.naming
