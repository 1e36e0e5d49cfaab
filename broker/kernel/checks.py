"""Checks of requests that several themes make."""

from __future__ import annotations

from typing import Final

from penstock.errors import InvalidRequest

CLIENT_BYTES_MAX: Final = 65_535
"""Of an MQTT client id."""
NAME_BYTES_MAX: Final = 255
"""Of the name of a group, a member or a taker."""


def check_text(what: str, text: str, bytes_max: int) -> None:
    """Raises ``InvalidRequest``, which names ``what`` it is, unless it has 1 to ``bytes_max`` bytes of UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} is Unicode without surrogates") from None
    if not 0 < size <= bytes_max:
        raise InvalidRequest(f"{what} has 1 to {bytes_max} bytes")
