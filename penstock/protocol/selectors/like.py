"""LIKE: ``%`` stands for any characters, ``_`` for one; a character behind an escape character stands for itself.

Time grows with the text's length only, whatever the pattern: pieces between ``%`` that are plain are looked for as they
are, from left to right; a pattern with ``_`` is a set of places in it, as bits of one number, that each character
moves on.
"""

from __future__ import annotations

from typing import Final

_ANY: Final = -1
_MANY: Final = -2


class LikePattern:
    """A pattern, ready to be matched. Raises ``ValueError`` for a wrong escape."""

    def __init__(self, pattern: str, escape: str = "") -> None:
        parts = _parts_of(pattern, escape)
        self._pieces: list[bytes] = []
        """The plain texts between ``%``; empty if the pattern has ``_``."""
        self._moves: dict[str, int] = {}
        self._any = 0
        self._many = 0
        self._length = 0
        if _ANY in parts:
            self._set_bits(parts)
        else:
            self._pieces = _pieces_of(parts)

    def matches(self, value: bytes) -> bool:
        """Whether the whole of a UTF-8 text matches."""
        if self._pieces:
            return self._matches_pieces(value)
        return self._matches_bits(value.decode("utf-8", "replace"))

    def _matches_pieces(self, value: bytes) -> bool:
        pieces = self._pieces
        first, last = pieces[0], pieces[-1]
        if len(pieces) == 1:
            return value == first
        end = len(value) - len(last)
        at = len(first)
        if end < at or not value.startswith(first) or not value.endswith(last):
            return False
        for place in range(1, len(pieces) - 1):
            found = value.find(pieces[place], at, end)
            if found < 0:
                return False
            at = found + len(pieces[place])
        return True

    def _matches_bits(self, text: str) -> bool:
        moves, many, anything = self._moves, self._many, self._any
        places = self._rested(1)
        for letter in text:
            places = self._rested((places & (moves.get(letter, 0) | anything)) << 1 | places & many)
            if not places:
                return False
        return bool(places >> self._length & 1)

    def _rested(self, places: int) -> int:
        """With those behind each ``%`` that is reached: it may stand for nothing."""
        return places | (places & self._many) << 1

    def _set_bits(self, parts: list[int]) -> None:
        for place, part in enumerate(parts):
            bit = 1 << place
            if part == _MANY:
                self._many |= bit
            elif part == _ANY:
                self._any |= bit
            else:
                self._moves[chr(part)] = self._moves.get(chr(part), 0) | bit
        self._length = len(parts)


def _parts_of(pattern: str, escape: str) -> list[int]:
    """The characters of a pattern by number, with ``_ANY`` and ``_MANY``."""
    if escape and (len(escape) != 1 or escape in "%_"):
        raise ValueError("an escape is one character, and neither % nor _")
    parts: list[int] = []
    escaped = False
    for letter in pattern:
        if escaped:
            if letter not in "%_" and letter != escape:
                raise ValueError(f"the escape {escape!r} stands before %, _ or itself, not before {letter!r}")
            parts.append(ord(letter))
            escaped = False
        elif escape and letter == escape:
            escaped = True
        elif letter == "%":
            if not parts or parts[-1] != _MANY:  # one behind the other says no more
                parts.append(_MANY)
        else:
            parts.append(_ANY if letter == "_" else ord(letter))
    if escaped:
        raise ValueError(f"the escape {escape!r} stands before %, _ or itself, not at the end")
    return parts


def _pieces_of(parts: list[int]) -> list[bytes]:
    pieces = [""]
    for part in parts:
        if part == _MANY:
            pieces.append("")
        else:
            pieces[-1] += chr(part)
    return [piece.encode() for piece in pieces]
