"""Tokens of a selector, as RocketMQ's grammar has them: each with its place in the text.

Keywords are of any case, names of properties are not. A string doubles its quotes. ``--`` begins a comment up to the
line's end, ``/*`` one up to ``*/``. ``$.a.b`` is a field of a JSON body: there a name goes on over its dots.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.errors import InvalidFilter

TEXT_BYTES_MAX: Final = 64 * 1024
LITERAL_BYTES_MAX: Final = 1024
"""Of a string, a number or a name."""

WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
"""Names that no property can have in a selector. LIKE and ESCAPE are none: RocketMQ has properties of these names."""

_TOKEN: Final = re.compile(
    r"""
      (?P<space> [ \t\n\r\f]+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole> 0 | [1-9][0-9]*[lL]? )
    | (?P<string> '(?:[^']|'')*' )
    | (?P<field> \$(?:\.[A-Za-z0-9_$]+)+ )
    | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign> <> | >= | <= | [=<>+\-(),] )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A piece of a selector's text.

    Attributes:
        kind: ``float``, ``whole``, ``string``, ``field``, ``name``, ``word`` (a keyword), ``sign``, or ``end``.
        text: as it is written; of a keyword in capitals, of a string what it stands for.
        at: its place in the whole text, from 0.
    """

    kind: str
    text: str
    at: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of a selector, with one of the kind ``end`` behind them. Raises ``InvalidFilter``."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise wrong(text, error.start, "a filter is valid Unicode") from None
    if size > TEXT_BYTES_MAX:
        raise InvalidFilter(f"a filter has at most {TEXT_BYTES_MAX} bytes, not {size}")
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unknown(text, at)
        kind = found.lastgroup
        assert kind is not None
        if kind != "space":
            tokens.append(_token(text, kind, found.group(), at))
        at = found.end()
    tokens.append(Token("end", "", at))
    return tokens


def _token(text: str, kind: str, written: str, at: int) -> Token:
    if kind == "string":
        written = written[1:-1].replace("''", "'")
    if len(written.encode()) > LITERAL_BYTES_MAX:
        raise wrong(text, at, f"a literal or a name has at most {LITERAL_BYTES_MAX} bytes")
    if kind == "name" and written.upper() in WORDS:
        return Token("word", written.upper(), at)
    return Token(kind, written, at)


def _unknown(text: str, at: int) -> InvalidFilter:
    if text[at] == "'":
        return wrong(text, at, "this string has no closing quote")
    if text.startswith("/*", at):
        return wrong(text, at, "this comment has no end")
    if text[at] == '"':
        return wrong(text, at, "a string stands in single quotes")
    if text[at] == "!":
        return wrong(text, at, "unequal is written <>")
    return wrong(text, at, f"{text[at]!r} means nothing in a filter")


def wrong(text: str, at: int, what: str) -> InvalidFilter:
    """The error of a place in a selector, with the text there."""
    there = text[at : at + 20]
    place = f"at character {at + 1}, {there!r}" if there else "at the end"
    return InvalidFilter(f"filter, {place}: {what}", at=at)
