"""Reads the option ``where``: conditions in SQL's words that are joined by AND.

Each condition is a column, a comparison and literals, so that conditions on queues, offsets, times and messages can be
separated. Strings double their quotes; ``X'6B31'`` is bytes. OR is not read: IN says most of it. Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.errors import InvalidConfig

Literal = str | int | bytes

_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ )
    | (?P<bytes> [xX]'[0-9A-Fa-f]*' )
    | (?P<string> '(?:[^']|'')*' )
    | (?P<number> -?[0-9]+ )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* | `[^`]+` )
    | (?P<sign> <> | != | == | >= | <= | [=<>(),\[\]] )
    """,
    re.VERBOSE,
)
_SAME: Final = {"!=": "<>", "==": "="}
_ORDERS: Final = ("=", "<>", "<", "<=", ">", ">=")


class Condition(NamedTuple):
    """A condition on a column.

    Attributes:
        column: its name.
        word: ``= <> < <= > >=``, ``IN``, ``LIKE`` or ``IS NULL``.
        values: the literals that it is compared with; empty for ``IS NULL``.
        negated: NOT IN, NOT LIKE or IS NOT NULL.
        field: of ``properties``, the property.
    """

    column: str
    word: str
    values: tuple[Literal, ...] = ()
    negated: bool = False
    field: str = ""

    @property
    def name(self) -> str:
        """The column as it is written."""
        return f"{self.column}[{self.field!r}]" if self.field else self.column


def read_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of a text, all of which must hold. Raises ``InvalidConfig``."""
    return _Reading(text).whole()


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens_of(text))
        self._at = 0

    def whole(self) -> tuple[Condition, ...]:
        found = [*self._condition()]
        while self._take("AND"):
            found += self._condition()
        if self._kind() != "end":
            hint = "conditions are joined by AND; leave others to df.where()"
            raise InvalidConfig(f"where: {self._rest()!r} cannot be read", hint=hint)
        return tuple(found)

    def _condition(self) -> list[Condition]:
        column, field = self._expect("name", "a column"), ""
        if self._take("["):
            field = str(self._literal("a property"))
            self._expect_text("]")
        kind, text = self._tokens[self._at]
        if kind == "sign" and text in _ORDERS:
            self._at += 1
            return [Condition(column, text, (self._literal(),), field=field)]
        if self._take("IS"):
            negated = self._take("NOT")
            self._expect_text("NULL")
            return [Condition(column, "IS NULL", (), negated, field)]
        negated = self._take("NOT")
        if self._take("IN"):
            return [Condition(column, "IN", self._list(), negated, field)]
        if self._take("LIKE"):
            return [Condition(column, "LIKE", (self._literal(),), negated, field)]
        if not negated and self._take("BETWEEN"):
            low = self._literal()
            self._expect_text("AND")
            high = self._literal()
            return [Condition(column, ">=", (low,), field=field), Condition(column, "<=", (high,), field=field)]
        raise InvalidConfig(f"where: a comparison is expected before {self._rest()!r}")

    def _list(self) -> tuple[Literal, ...]:
        self._expect_text("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._expect_text(")")
        return tuple(values)

    def _literal(self, what: str = "a string or a number") -> Literal:
        kind, text = self._tokens[self._at]
        if kind == "name" and text.upper() == "TIMESTAMP" and self._tokens[self._at + 1][0] == "string":
            self._at += 1
            kind, text = self._tokens[self._at]
        if kind not in ("string", "number", "bytes"):
            raise InvalidConfig(f"where: {what} is expected before {self._rest()!r}")
        self._at += 1
        if kind == "number":
            return int(text)
        return text[1:-1].replace("''", "'") if kind == "string" else _bytes(text[2:-1])

    def _expect(self, kind: str, what: str) -> str:
        found, text = self._tokens[self._at]
        if found != kind:
            raise InvalidConfig(f"where: {what} is expected before {self._rest()!r}")
        self._at += 1
        return text.strip("`")

    def _expect_text(self, text: str) -> None:
        if not self._take(text):
            raise InvalidConfig(f"where: {text} is expected before {self._rest()!r}")

    def _take(self, text: str) -> bool:
        kind, found = self._tokens[self._at]
        is_there = kind in ("name", "sign") and found.upper() == text
        self._at += is_there
        return is_there

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _rest(self) -> str:
        return " ".join(text for _, text in self._tokens[self._at :]).strip()


def _tokens_of(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidConfig(f"where: {text[at:]!r} cannot be read")
        if match.lastgroup != "space":
            found.append((match.lastgroup or "", _SAME.get(match[0], match[0])))
        at = match.end()
    return [*found, ("end", "")]


def _bytes(digits: str) -> bytes:
    if len(digits) % 2:
        raise InvalidConfig(f"where: X'{digits}' has half a byte")
    return bytes.fromhex(digits)
