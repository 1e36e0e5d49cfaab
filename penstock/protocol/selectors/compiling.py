"""From a selector's text to the conditions that run: what a broker and a client ask for a filter.

What is compared most, a property with a literal, has a condition of its own; all else is built of general ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.protocol.selectors import conditions as run
from penstock.protocol.selectors import syntax
from penstock.protocol.selectors.like import LikePattern
from penstock.protocol.selectors.parser import parse
from penstock.protocol.selectors.values import FALSE, TRUE, UNKNOWN, Subject

KEPT_MAX: Final = 100
"""Compiled selectors that are remembered by their texts."""
_ACCEPTS: Final = {
    "=": run.SAME,
    "<>": run.LESS | run.MORE,
    "<": run.LESS,
    "<=": run.LESS | run.SAME,
    ">": run.MORE,
    ">=": run.MORE | run.SAME,
}


class Selector:
    """A compiled filter.

    Attributes:
        text: as it was written.
        nodes: how many properties, literals and operations it has: what one judgement costs.
        reads_body: whether it looks into JSON bodies.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        condition, self.nodes = parse(text)
        build = _Build()
        self._condition = build.condition(condition)
        self.reads_body = build.reads_body

    def verdict(self, properties: bytes, body: bytes = b"") -> int:
        """``TRUE``, ``FALSE``, ``UNKNOWN`` or ``ERROR`` for a message."""
        return self._condition.judge(Subject(properties, body))

    def matches(self, properties: bytes, body: bytes = b"") -> bool:
        """Whether a message is wanted.

        Args:
            properties: the record's property string, undecoded.
            body: its body; needed only if ``reads_body``.
        """
        return self._condition.judge(Subject(properties, body)) == TRUE


@lru_cache(maxsize=KEPT_MAX)
def selector_of(text: str) -> Selector:
    """The selector that a text says. Raises ``InvalidFilter``."""
    return Selector(text)


class _Build:
    """The parts that are built for one selector."""

    def __init__(self) -> None:
        self.reads_body = False

    def condition(self, term: syntax.Condition) -> run.Condition:
        if isinstance(term, syntax.Comparison):
            return self._comparison(term)
        if isinstance(term, syntax.And):
            return run.And([self.condition(one) for one in term.terms])
        if isinstance(term, syntax.Or):
            return run.Or([self.condition(one) for one in term.terms])
        if isinstance(term, syntax.Not):
            return run.Not(self.condition(term.term))
        if isinstance(term, syntax.Truth):
            return run.Truth(self._operand(term.value))
        if isinstance(term, syntax.IsNull):
            return run.IsNull(self._operand(term.value), term.negated)
        if isinstance(term, syntax.OneOf):
            choices = frozenset([one.encode() for one in term.choices])
            return run.OneOf(self._operand(term.value), choices, term.negated)
        if isinstance(term, syntax.TextSearch):
            return run.TextSearch(self._operand(term.value), term.search, term.text.encode(), term.negated)
        if isinstance(term, syntax.Like):
            return run.Like(self._operand(term.value), LikePattern(term.pattern, term.escape), term.negated)
        return run.Known(UNKNOWN if term.value is None else TRUE if term.value else FALSE)

    def _comparison(self, term: syntax.Comparison) -> run.Condition:
        left, right, accepts = term.left, term.right, _ACCEPTS[term.order]
        equality = term.order in ("=", "<>")
        if isinstance(left, syntax.Property) and isinstance(right, syntax.Constant):
            name, value = left.name.encode(), right.value
            if isinstance(value, str) and equality:
                return run.TextEquality(name, accepts, value.encode())
            if isinstance(value, float):
                return run.DoubleComparison(name, accepts, value)
            if isinstance(value, int) and not isinstance(value, bool):
                return run.WholeComparison(name, accepts, value)
        if equality:
            return run.Equality(self._operand(left), accepts, self._operand(right))
        return run.Ordering(self._operand(left), accepts, self._operand(right))

    def _operand(self, value: syntax.Value) -> run.Operand:
        if isinstance(value, syntax.Property):
            return run.PropertyOperand(value.name.encode())
        if isinstance(value, syntax.Field):
            self.reads_body = True
            return run.FieldOperand(value.path)
        if isinstance(value, syntax.Constant):
            return run.ConstantOperand(value.value.encode() if isinstance(value.value, str) else value.value)
        if isinstance(value, syntax.Negated):
            return run.NegatedOperand(self._operand(value.value))
        return run.JudgedOperand(self.condition(value))
