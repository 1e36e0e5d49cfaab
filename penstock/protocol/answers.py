"""Where a request wants its answer, and by what its sender knows it: MQTT 5's response topic and correlation data, as
gateways keep them with a message. So devices and services answer each other. Pure and total.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

from penstock.errors import InvalidMessage

RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
CONTENT_TYPE: Final = 0x03
USER_PROPERTY: Final = 0x26
_STRINGS: Final = {CONTENT_TYPE: 1, RESPONSE_TOPIC: 1, CORRELATION_DATA: 1, USER_PROPERTY: 2}
"""How many strings each property has that a message may carry; only one other has a value, of one byte."""
_FORMAT: Final = 0x01
STRING_BYTES_MAX: Final = 65_535


class Answer(NamedTuple):
    """``to``: the MQTT name under which the answer is wanted, empty if none is. ``correlation``: the data that it then
    has to carry; or, of an answer, what its request carried."""

    to: str
    correlation: bytes


def packed_answer(to: str, correlation: bytes, content_type: str = "") -> str:
    """The value of ``MQTT_PROPS`` that says so. Raises ``InvalidMessage`` for what MQTT cannot say."""
    parts: list[bytes] = []
    for identifier, name, value in (
        (CONTENT_TYPE, "content_type", content_type.encode()),
        (RESPONSE_TOPIC, "reply_to", to.encode()),
        (CORRELATION_DATA, "correlation", correlation),
    ):
        if len(value) > STRING_BYTES_MAX:
            raise InvalidMessage(f"{name} has at most {STRING_BYTES_MAX} bytes, not {len(value)}")
        if value:
            parts.append(packed_property(identifier, value))
    return ":" + b64encode(b"".join(parts)).decode()


def packed_property(identifier: int, *strings: bytes) -> bytes:
    """A property that consists of strings, as it is in a packet."""
    return bytes((identifier,)) + b"".join([len(one).to_bytes(2, "big") + one for one in strings])


def answer_in(mqtt_properties: str) -> Answer:
    """The answer's fields in a value of ``MQTT_PROPS``."""
    found = {identifier: strings[-1] for identifier, strings in strings_in(mqtt_properties)}
    return Answer(found.get(RESPONSE_TOPIC, b"").decode("utf-8", "replace"), found.get(CORRELATION_DATA, b""))


def strings_in(mqtt_properties: str) -> list[tuple[int, tuple[bytes, ...]]]:
    """The identifiers of the properties in a value of ``MQTT_PROPS`` that consist of strings, with these, in order."""
    try:
        data = b64decode(mqtt_properties.partition(":")[2], validate=True)
    except (ValueError, Base64Error):
        return []
    return strings_of(data)


def strings_of(data: bytes) -> list[tuple[int, tuple[bytes, ...]]]:
    """The same of properties as they are in a packet."""
    found, at = list[tuple[int, tuple[bytes, ...]]](), 0
    while at < len(data):
        identifier = data[at]
        at += 1
        if identifier == _FORMAT:
            at += 1
            continue
        if identifier not in _STRINGS:
            break  # another program has written it: where it ends is not known
        strings = list[bytes]()
        for _ in range(_STRINGS[identifier]):
            end = at + 2 + int.from_bytes(data[at : at + 2], "big")
            strings.append(data[at + 2 : end])
            at = end
        found.append((identifier, tuple(strings)))
    return found
