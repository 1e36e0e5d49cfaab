"""The data types of which MQTT packets are made: integers, variable byte integers, strings, binary data, string pairs
(MQTT 5, 1.5).

``FieldReader`` reads them from the body of one packet, strictly: a read past the end, an integer longer than it must be
and a string that is not well-formed UTF-8 are ``MalformedPacket``. It never reads outside the body and never
allocates more than the body holds. The functions write them.
"""

from __future__ import annotations

from typing import Final

from gateway.mqtt.reason_codes import MalformedPacket

VARIABLE_INTEGER_MAX: Final = 268_435_455
STRING_BYTES_MAX: Final = 65_535
ANY_NUMBER: Final = 1 << 28
"""No limit: more than a packet has bytes."""
_CUT_SHORT: Final = "the packet ends within a field"


class FieldReader:
    """A place in the body of a packet; every read moves it on.

    Attributes:
        data: the body.
        at: where the next read begins.
        end: where reading must stop; at most the body's length.
        filters_max: after how many topic filters and one more the others are not looked at.
    """

    __slots__ = ("at", "data", "end", "filters_max")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None, filters_max: int = ANY_NUMBER) -> None:
        self.filters_max = filters_max
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def _take(self, size: int) -> int:
        at = self.at
        self.at = at + size
        if self.at > self.end:
            raise MalformedPacket(_CUT_SHORT)
        return at

    def byte(self) -> int:
        at = self.at
        if at >= self.end:
            raise MalformedPacket(_CUT_SHORT)
        self.at = at + 1
        return self.data[at]

    def two_bytes(self) -> int:
        at = self._take(2)
        return self.data[at] << 8 | self.data[at + 1]

    def four_bytes(self) -> int:
        at = self._take(4)
        return int.from_bytes(self.data[at : at + 4], "big")

    def variable_integer(self) -> int:
        """At most four bytes, and no more than the value needs (MQTT-1.5.5-1)."""
        value = self.byte()
        if value < 128:
            return value
        value &= 127
        for shift in (7, 14, 21):
            more = self.byte()
            value |= (more & 127) << shift
            if more < 128:
                if not more:
                    raise MalformedPacket("a variable byte integer is longer than it must be (MQTT-1.5.5-1)")
                return value
        raise MalformedPacket("a variable byte integer has more than four bytes (MQTT-1.5.5-1)")

    def binary(self) -> bytes:
        at = self._take(2)
        at = self._take(self.data[at] << 8 | self.data[at + 1])
        return self.data[at : self.at]

    def text(self) -> str:
        return text_of(self.binary())

    def rest(self) -> bytes:
        """Everything up to the end."""
        at, self.at = self.at, self.end
        return self.data[at : self.end]

    def skip_rest(self) -> None:
        """Goes to the end, whatever there is on the way."""
        self.at = self.end

    @property
    def is_at_end(self) -> bool:
        return self.at >= self.end

    def finish(self) -> None:
        """Raises ``MalformedPacket`` unless everything has been read."""
        if self.at != self.end:
            raise MalformedPacket(f"{self.end - self.at} bytes follow the packet's last field")


def text_of(raw: bytes) -> str:
    """A string's text: well-formed UTF-8 without surrogates (MQTT-1.5.4-1; 1.5.3-1 of 3.1.1) and without U+0000
    (MQTT-1.5.4-2; 1.5.3-2). A byte order mark is a character like any other (MQTT-1.5.4-3; 1.5.3-3)."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a string is not well-formed UTF-8: {error.reason} (MQTT-1.5.4-1)") from None
    if "\0" in text:
        raise MalformedPacket("a string holds U+0000 (MQTT-1.5.4-2)")
    return text


def encode_variable_integer(value: int) -> bytes:
    """In as few bytes as possible. Raises ``ValueError`` outside 0 to 268,435,455."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= VARIABLE_INTEGER_MAX:
        raise ValueError(f"a variable byte integer is from 0 to {VARIABLE_INTEGER_MAX}, not {value}")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE: Final = tuple([bytes((value,)) for value in range(128)])


def encode_binary(raw: bytes) -> bytes:
    """Binary data with its length. Raises ``ValueError`` above 65,535 bytes."""
    if len(raw) > STRING_BYTES_MAX:
        raise ValueError(f"a field has at most {STRING_BYTES_MAX} bytes, not {len(raw)}")
    return len(raw).to_bytes(2, "big") + raw


def encode_text(text: str) -> bytes:
    """A string with its length. Raises ``ValueError`` where it has none: too long, or with a surrogate."""
    return encode_binary(text.encode("utf-8"))
