"""JSON as this service reads it: at most ``LEVELS_MAX`` levels deep, so that each value that was read can be written.

``orjson`` reads 1,024 levels and writes 254, and Python's stack holds fewer than that. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

LEVELS_MAX: Final = 100


class NotJson(ValueError):
    """Bytes that are not JSON, or JSON with too many levels."""


def read_json(text: bytes) -> Any:
    """The value of a JSON text. Raises ``NotJson``."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    if text.count(b"[") + text.count(b"{") > LEVELS_MAX and is_deep(value):
        raise NotJson(f"more than {LEVELS_MAX} levels")
    return value


def is_deep(value: object) -> bool:
    """Whether a value of JSON has more than ``LEVELS_MAX`` levels."""
    row = [value]
    for _ in range(LEVELS_MAX):
        below: list[object] = []
        for one in row:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        row = [one for one in below if type(one) is dict or type(one) is list]
        if not row:
            return False
    return True
