"""Schemas as text, in the words of Spark's DDL: ``temp DOUBLE, tags ARRAY<STRING>``. Pure.

Spark has a parser of its own, in Java, which the processes that plan a Python source do not reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from penstock.errors import InvalidConfig

_T = TypeVar("_T")
TIME: Final = pa.timestamp("us", tz="UTC")
_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME,
    "decimal": pa.decimal128(10, 0),
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*|\d+)|(<|>|,|:|\(|\)))")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_PRECISION_MAX: Final = 38
_DEPTH_MAX: Final = 32


def parse(text: str) -> pa.DataType:
    """The type that a text describes: of columns (``a INT, b STRING``) a struct, else the type itself.

    Raises ``InvalidConfig``, which says where the text goes wrong.
    """
    tokens = _tokens(text)
    whole = _Parser(tokens, text)
    if len(tokens) == 1 or tokens[1] in (("<", True), ("(", True)):
        found = whole.type(0)
    else:
        found = pa.struct(whole.fields(0, end=None))
    whole.finish()
    return found


def text_of(kind: pa.DataType) -> str:
    """The text that ``parse`` reads as this type."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{columns_of(kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{text_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{text_of(kind.key_type)}, {text_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return next(name for name, one in _SIMPLE.items() if one == kind).upper()


def columns_of(kind: pa.DataType) -> str:
    """The fields of a struct as columns."""
    return ", ".join(
        f"{field.name if _PLAIN_NAME.fullmatch(field.name) else quoted(field.name)} {text_of(field.type)}"
        for field in kind
    )


def quoted(name: str) -> str:
    """A name between backticks, in which any characters are allowed."""
    return "`" + name.replace("`", "``") + "`"


_Token = tuple[str, bool]
"""A word, or a sign where the second is true."""


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidConfig(f"schema: {text[at:].strip()[:20]!r} is no part of a schema", hint=_HINT)
        quoted, word, sign = match.groups()
        found.append((quoted.replace("``", "`"), False) if quoted else (word, False) if word else (sign, True))
        at = match.end()
    if not found:
        raise InvalidConfig("the schema is empty", hint=_HINT)
    return found


_HINT: Final = "as in `temp DOUBLE, tags ARRAY<STRING>`"


class _Parser:
    """Reads types off a list of tokens."""

    def __init__(self, tokens: list[_Token], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._at = 0

    def finish(self) -> None:
        """Raises ``InvalidConfig`` where something is left."""
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][0]!r} is too much")

    def fields(self, depth: int, end: str | None) -> list[pa.Field]:
        """Names and types with commas between them, up to the sign ``end``."""
        found: list[pa.Field] = []
        while True:
            name = self._word()
            self._take(":")
            found.append(pa.field(name, self.type(depth + 1)))
            while self._take_word("not") or self._take_word("null"):
                pass  # what devices send may lack any field
            if not self._take(","):
                break
        if end is not None:
            self._expect(end)
        names = [one.name for one in found]
        for name in names:
            if names.count(name) > 1:
                raise self._wrong(f"two fields are named {name!r}")
        return found

    def type(self, depth: int) -> pa.DataType:
        """One type."""
        if depth > _DEPTH_MAX:
            raise self._wrong(f"it is more than {_DEPTH_MAX} deep")
        name = self._word().lower()
        if name == "array":
            return pa.list_(*self._inside(lambda: [self.type(depth + 1)]))
        if name == "struct":
            self._expect("<")
            return pa.struct(self.fields(depth, ">"))
        if name == "map":
            key, item = self._inside(partial(self._pair, depth))
            if key != pa.string():
                raise self._wrong("the keys of a MAP are STRING")
            return pa.map_(key, item)
        if name == "decimal" and self._take("("):
            return self._decimal()
        if name not in _SIMPLE:
            raise self._wrong(f"there is no type {name!r}")
        return _SIMPLE[name]

    def _pair(self, depth: int) -> tuple[pa.DataType, pa.DataType]:
        key = self.type(depth + 1)
        self._expect(",")
        return key, self.type(depth + 1)

    def _decimal(self) -> pa.DataType:
        precision, scale = self._word(), "0"
        if self._take(","):
            scale = self._word()
        self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal() and 0 < int(precision) <= _PRECISION_MAX):
            raise self._wrong("DECIMAL(p, s) has up to 38 digits")
        if int(scale) > int(precision):
            raise self._wrong("DECIMAL(p, s) has no more digits behind the point than in all")
        return pa.decimal128(int(precision), int(scale))

    def _inside(self, read: Callable[[], _T]) -> _T:
        self._expect("<")
        found = read()
        self._expect(">")
        return found

    def _word(self) -> str:
        if self._at >= len(self._tokens):
            raise self._wrong("it ends too early")
        word, is_sign = self._tokens[self._at]
        if is_sign:
            raise self._wrong(f"{word!r} stands where a name is expected")
        self._at += 1
        return word

    def _take(self, sign: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == (sign, True)
        self._at += found
        return found

    def _take_word(self, word: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at][0].lower() == word
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            got = self._tokens[self._at][0] if self._at < len(self._tokens) else "its end"
            raise self._wrong(f"{sign!r} is expected, not {got!r}")

    def _wrong(self, why: str) -> InvalidConfig:
        return InvalidConfig(f"schema {self._text[:100]!r}: {why}", hint=_HINT)
