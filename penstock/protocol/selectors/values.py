"""Values of messages as selectors see them, and RocketMQ's rules for comparing them.

A property is a string, here as its UTF-8; a field of a JSON body is what it is there. A string that meets a number is
read as a number of that one's Java type, and one that cannot be read so is an *error*: the message is not delivered,
whatever else the selector says. -0.0 is below 0.0, and NaN above all and equal to itself, as in Java.
"""

from __future__ import annotations

import json
import re
from math import copysign
from typing import Final

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
ERROR: Final = 3

BODY_BYTES_MAX: Final = 64 * 1024
"""In a longer body no field is found."""
INTEGER_END: Final = 1 << 31
"""The number from which on a whole number is a Java ``long``."""
LONG_END: Final = 1 << 63
FAILED: Final = 2
"""In place of an order: the two cannot be compared."""
_DIGITS_MAX: Final = 1024
_DECIMAL: Final = b"0123456789.+-eE"
_DOUBLE: Final = re.compile(
    rb"[\x00-\x20]*([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    rb"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)

_Document = dict[str, object]


class Subject:
    """The message that is judged: its property string, and its body where the selector reads fields of it."""

    __slots__ = ("_body", "_document", "properties")

    def __init__(self, properties: bytes, body: bytes = b"") -> None:
        self.properties = properties
        self._body = body
        self._document: object = None

    def field(self, path: tuple[str, ...]) -> object:
        """A field of the body: a string as UTF-8, a number, a truth value, or ``None`` where there is none of these."""
        if self._document is None:
            self._document = _document_of(self._body)
        found: object = self._document
        for name in path:
            if not isinstance(found, dict):
                return None
            found = found.get(name)
        return _as_value(found)


def _document_of(body: bytes) -> _Document:
    """The JSON object that a body is; an empty one where it is none."""
    if len(body) > BODY_BYTES_MAX:
        return {}
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _as_value(found: object) -> object:
    if isinstance(found, str):
        return found.encode("utf-8", "surrogatepass")
    if isinstance(found, bool | float):
        return found
    if isinstance(found, int):
        return found if -LONG_END <= found < LONG_END else _as_float(found)
    return None


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def property_value(properties: bytes, first: bytes, later: bytes) -> bytes | None:
    """The value of a property in an encoded property string; ``None`` if it is missing.

    Args:
        first: the name and U+0001.
        later: U+0002, the name and U+0001.
    """
    if properties.startswith(first):
        at = len(first)
    else:
        at = properties.find(later)
        if at < 0:
            return None
        at += len(later)
    end = properties.find(b"\x02", at)
    return properties[at:] if end < 0 else properties[at:end]


def whole_of(text: bytes, end: int) -> int | None:
    """The number that Java reads of a text as an ``int`` or ``long`` with values from -``end`` to below ``end``."""
    digits = text if text.isdigit() else text[1:] if text[:1] in (b"+", b"-") else b""
    if len(digits) > _DIGITS_MAX or not digits.isdigit():
        return None
    number = int(text)
    return number if -end <= number < end else None


def double_of(text: bytes) -> float | None:
    """The number that Java reads of a text as a ``double``."""
    if not text.translate(None, _DECIMAL):
        try:
            return float(text)
        except ValueError:
            return None
    found = _DOUBLE.fullmatch(text)
    if found is None:
        return None
    sign, nan, infinity, decimal, hexadecimal = found.groups()
    if nan:
        return float("nan")
    if infinity:
        value = float("inf")
    elif decimal:
        value = float(decimal)
    else:
        try:
            value = float.fromhex(hexadecimal.decode())
        except OverflowError:
            value = float("inf")
    return -value if sign == b"-" else value


def order_of(left: float, right: float) -> int:
    """-1, 0 or 1, as Java's ``Double.compare``."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left or copysign(1.0, left) == copysign(1.0, right) else int(copysign(1.0, left))
    return (left != left) - (right != right)  # NaN


def compare(left: object, right: object) -> int:
    """-1, 0 or 1 for two values that are not NULL, -1 for kinds that have no order; ``FAILED`` if one cannot be read
    as the other's kind."""
    if isinstance(left, bytes):
        if isinstance(right, bytes):
            return 0 if left == right else -1 if left < right else 1
        if isinstance(right, bool):
            return (left.lower() == b"true") - right
        assert isinstance(right, int | float)
        number = _number_as(left, right)
        return FAILED if number is None else _order_of_numbers(number, right)
    if isinstance(left, bool):
        if isinstance(right, bool):
            return left - right
        return FAILED if isinstance(right, bytes) else -1
    assert isinstance(left, int | float)
    if isinstance(right, bool):
        return -1
    if isinstance(right, bytes):
        number = _number_as(right, left)
        return FAILED if number is None else _order_of_numbers(left, number)
    assert isinstance(right, int | float)
    return _order_of_numbers(left, right)


def _number_as(text: bytes, other: int | float) -> int | float | None:
    """The number that a text stands for where it meets another one."""
    if isinstance(other, float):
        return double_of(text)
    return whole_of(text, whole_end(other))


def whole_end(number: int) -> int:
    """The end of the Java type of a whole number."""
    return INTEGER_END if -INTEGER_END < number < INTEGER_END else LONG_END


def _order_of_numbers(left: int | float, right: int | float) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return order_of(float(left), float(right))
