"""Selectors judged the plain way, written apart from the code under test: over whole dictionaries, with exceptions for
errors, as RocketMQ's rules read. And the text of a tree, with brackets around everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.protocol.selectors import syntax

JAVA: dict[str, tuple[int | None, float | None]] = {
    "": (None, None),
    "x": (None, None),
    "xyx": (None, None),
    "true": (None, None),
    "TRUE": (None, None),
    "5": (5, 5.0),
    "05": (5, 5.0),
    "+5": (5, 5.0),
    "-7": (-7, -7.0),
    " 5": (None, 5.0),
    "5.5": (None, 5.5),
    "5e0": (None, 5.0),
    "1_0": (None, None),
    "3000000000": (3_000_000_000, 3e9),
    "9223372036854775808": (None, 9223372036854775808.0),
}
"""What Java reads of some strings as a ``long`` and as a ``double``."""
INT_MAX = 2**31 - 1


class Mismatch(Exception):
    """RocketMQ throws here."""


@dataclass
class Message:
    properties: Mapping[str, str]
    document: Mapping[str, Any]


def evaluate(node: syntax.Value, message: Message) -> Any:
    match node:
        case syntax.Property(name):
            return message.properties.get(name)
        case syntax.Field(path):
            found: Any = message.document
            for name in path:
                found = found.get(name) if isinstance(found, Mapping) else None
            return None if isinstance(found, Mapping | list) else found
        case syntax.Constant(value):
            return value
        case syntax.Negated(value):
            number = evaluate(value, message)
            return -number if is_number(number) else None
        case syntax.Truth(value):
            found = evaluate(value, message)
            return None if found is None else found is True
        case syntax.Not(term):
            found = evaluate(term, message)
            return None if found is None else not found
        case syntax.And(terms):
            return all_of([(lambda one=one: evaluate(one, message)) for one in terms])
        case syntax.Or(terms):
            negated = all_of([(lambda one=one: invert(evaluate(one, message))) for one in terms])
            return invert(negated)
        case syntax.Comparison(left, order, right):
            return compared(left, order, right, message)
        case syntax.IsNull(value, negated):
            return (evaluate(value, message) is None) != negated
        case syntax.OneOf(value, choices, negated):
            found = evaluate(value, message)
            return (found in choices) != negated if isinstance(found, str) else None
        case syntax.TextSearch(value, search, text, negated):
            found = evaluate(value, message) if text else None
            if not isinstance(found, str):
                return False
            hit = {"CONTAINS": text in found, "STARTSWITH": found[: len(text)] == text}
            return hit.get(search, found[-len(text) :] == text) != negated
        case syntax.Like(value, pattern, escape, negated):
            found = evaluate(value, message)
            return like(found, pattern, escape) != negated if isinstance(found, str) else None
    raise AssertionError(node)


def invert(found: bool | None) -> bool | None:
    return None if found is None else not found


def all_of(terms: list[Any]) -> bool | None:
    """AND from left to right: a FALSE ends it."""
    found: bool | None = True
    for term in terms:
        one = term()
        if one is False:
            return False
        if one is None:
            found = None
    return found


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compared(left: syntax.Value, order: str, right: syntax.Value, message: Message) -> bool | None:
    first, last = evaluate(left, message), None
    if order in ("=", "<>"):
        last = evaluate(right, message)
        if first is None and last is not None:
            return None
        same = first == last if first is None or last is None else sign(first, last) == 0
        return same == (order == "=")
    if first is None:
        return None
    last = evaluate(right, message)
    if last is None:
        return None
    if isinstance(first, bool) or isinstance(last, bool):
        raise Mismatch
    if isinstance(first, str) and isinstance(last, str):
        first, last = JAVA[first][1], JAVA[last][1]
        if first is None or last is None:
            raise Mismatch
    answer = sign(first, last)
    return {"<": answer < 0, "<=": answer <= 0, ">": answer > 0, ">=": answer >= 0}[order]


def sign(first: Any, last: Any) -> int:
    """-1, 0 or 1; -1 for kinds that do not go together."""
    if isinstance(first, str) and is_number(last):
        first = read_as(first, last)
    elif isinstance(last, str) and is_number(first):
        last = read_as(last, first)
    elif isinstance(first, str) and isinstance(last, bool):
        first = first.lower() == "true"
    elif isinstance(first, bool) and isinstance(last, str):
        raise Mismatch
    elif isinstance(first, bool) != isinstance(last, bool):
        return -1
    return -1 if first < last else int(first > last)


def read_as(text: str, number: float) -> float:
    whole, double = JAVA[text]
    read = double if isinstance(number, float) else whole
    if read is None or (not isinstance(number, float) and abs(number) <= INT_MAX < abs(read)):
        raise Mismatch
    return read


def like(text: str, pattern: str, escape: str) -> bool:
    """By trying everything."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if escape and first == escape:
        return text[:1] == rest[0] and like(text[1:], rest[1:], escape)
    if first == "%":
        return any(like(text[at:], rest, escape) for at in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and like(text[1:], rest, escape)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(node: syntax.Value) -> str:
    """A text that says this tree and no other."""
    match node:
        case syntax.Property(name):
            return name
        case syntax.Field(path):
            return ".".join(["$", *path])
        case syntax.Constant(value):
            return quoted(value) if isinstance(value, str) else "NULL" if value is None else repr(value).upper()
        case syntax.Negated(value):
            return f"-({written(value)})"
        case syntax.Truth(value):
            return written(value)
        case syntax.Not(term):
            return f"NOT ({written(term)})"
        case syntax.And(terms):
            return " AND ".join(f"({written(one)})" for one in terms)
        case syntax.Or(terms):
            return " OR ".join(f"({written(one)})" for one in terms)
        case syntax.Comparison(left, order, right):
            return f"({written(left)}) {order} ({written(right)})"
        case syntax.IsNull(value, negated):
            return f"({written(value)}) IS {'NOT ' if negated else ''}NULL"
        case syntax.OneOf(value, choices, negated):
            listed = ", ".join(quoted(one) for one in sorted(choices))
            return f"({written(value)}) {'NOT ' if negated else ''}IN ({listed})"
        case syntax.TextSearch(value, search, text, negated):
            return f"({written(value)}) {'NOT ' if negated else ''}{search} {quoted(text)}"
        case syntax.Like(value, pattern, escape, negated):
            behind = f" ESCAPE {quoted(escape)}" if escape else ""
            return f"({written(value)}) {'NOT ' if negated else ''}LIKE {quoted(pattern)}{behind}"
    raise AssertionError(node)
