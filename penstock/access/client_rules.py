"""Patterns of access rules about client ids: ``*`` stands for any text, also none, ``%u`` for the user name as it is,
and everything else for itself. docs/formats/access.md is the page. Pure.
"""

from __future__ import annotations

from typing import Final

PATTERN_BYTES_MAX: Final = 1024
_ANY: Final = "*"
_USER: Final = "%u"
_CLIENT: Final = "%c"


def check_pattern(pattern: str) -> None:
    """Raises ``ValueError`` for one that cannot be meant."""
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise ValueError(f"a pattern of client ids has at most {PATTERN_BYTES_MAX} bytes")
    if _CLIENT in pattern:
        raise ValueError("%c is the client id itself; a rule about client ids has * and %u")
    if pattern == "#" or "/#" in pattern or "+" in pattern.split("/"):
        raise ValueError("a pattern of client ids has * for any text, not the wildcards of MQTT")


def is_client_of(pattern: str, user: str, client: str, *, allows: bool) -> bool:
    """Whether a rule with this pattern applies to this client id of this user. ``%u`` for an anonymous client makes a
    rule that allows apply to nothing, and stands for any text in one that denies."""
    if _USER in pattern and not user:
        if allows:
            return False
        pattern = pattern.replace(_USER, _ANY)
    first, *rest = [part.replace(_USER, user) for part in pattern.split(_ANY)]
    if not rest:
        return client == first
    *middle, last = rest
    at, end = len(first), len(client) - len(last)
    if at > end or not client.startswith(first) or not client.endswith(last):
        return False
    for part in middle:
        found = client.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
