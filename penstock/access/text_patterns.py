"""Patterns of access rules about client ids, topics and groups: ``*`` stands for any text, also none, ``%u`` for the
user name as it is, and everything else for itself. docs/formats/access.md is the page. Pure.
"""

from __future__ import annotations

from typing import Final

PATTERN_BYTES_MAX: Final = 1024
_ANY: Final = "*"
_USER: Final = "%u"
_CLIENT: Final = "%c"


def check_pattern(pattern: str, of: str = "client ids") -> None:
    """Raises ``ValueError`` for one that cannot be meant. ``of``: what it is about, for the error."""
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise ValueError(f"a pattern of {of} has at most {PATTERN_BYTES_MAX} bytes")
    if _CLIENT in pattern:
        raise ValueError(f"%c is the client id of MQTT; a rule about {of} has * and %u")
    if pattern == "#" or "/#" in pattern or "+" in pattern.split("/"):
        raise ValueError(f"a pattern of {of} has * for any text, not the wildcards of MQTT")


def is_match(pattern: str, user: str, text: str, *, allows: bool) -> bool:
    """Whether a rule with this pattern applies to this text of this user. ``%u`` for an anonymous client makes a rule
    that allows apply to nothing, and stands for any text in one that denies."""
    if _USER in pattern and not user:
        if allows:
            return False
        pattern = pattern.replace(_USER, _ANY)
    first, *rest = [part.replace(_USER, user) for part in pattern.split(_ANY)]
    if not rest:
        return text == first
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
