"""Reads a selector: a text gives a checked tree, or ``InvalidFilter`` that says where it is wrong.

The grammar, loosest first, is RocketMQ's (``SelectorParser.jj``): OR; AND; ``= <>`` and IS [NOT] NULL; the other
comparisons, BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH, LIKE; the signs and NOT; a literal, a property, brackets. So
NOT binds tighter than a comparison: ``NOT a = 1`` compares ``NOT a``. What is compared is checked here, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from penstock.errors import InvalidFilter
from penstock.protocol.selectors.lexer import Token, tokens_of, wrong
from penstock.protocol.selectors.like import LikePattern
from penstock.protocol.selectors.syntax import (
    And,
    Comparison,
    Condition,
    Constant,
    Field,
    IsNull,
    Like,
    Negated,
    Not,
    OneOf,
    Or,
    Order,
    Property,
    Search,
    TextSearch,
    Truth,
    Value,
)

NODES_MAX: Final = 256
DEPTH_MAX: Final = 32
CHOICES_MAX: Final = 128
PATH_MAX: Final = 16
LONG_MAX: Final = (1 << 63) - 1
_CONDITIONS: Final = (Truth, Not, And, Or, Comparison, IsNull, OneOf, TextSearch, Like)
_ORDERS: Final = ("<", "<=", ">", ">=")
_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_Deep = tuple[Value, int, int]
"""A value, how deep its tree is, and where in the text it begins."""


def parse(text: str) -> tuple[Condition, int]:
    """The condition that a text says, and of how many nodes it is. Raises ``InvalidFilter``."""
    parser = _Parser(text)
    return parser.whole(), parser.nodes


class _Parser:
    """One reading of a text, by recursive descent: a method for each level of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0
        self._open = 0  # brackets, signs and NOTs around what is read
        self.nodes = 0

    def whole(self) -> Condition:
        if self._token.kind == "end":
            raise InvalidFilter("a filter says something; leave it out to get all messages", at=0)
        found = self._condition(self._or())
        if self._token.kind != "end":
            raise self._wrong("the filter could end here; expected AND, OR or a comparison")
        return found

    # ------------------------------------------------------------ levels

    def _or(self) -> _Deep:
        return self._chain("OR", self._and, Or)

    def _and(self) -> _Deep:
        return self._chain("AND", self._equality, And)

    def _chain(self, word: str, term: Callable[[], _Deep], node: type[And] | type[Or]) -> _Deep:
        first = term()
        if not self._is_word(word):
            return first
        depth, terms = first[1], [self._condition(first)]
        while self._take_word(word):
            one = term()
            depth = max(depth, one[1])
            terms.append(self._condition(one))
        return self._node(node(tuple(terms)), depth + 1, first[2])

    def _equality(self) -> _Deep:
        left = self._comparison()
        while True:
            at = self._token.at
            if self._is_sign("=", "<>"):
                order = cast(Order, self._take().text)
                left = self._compared(left, order, self._comparison(), at)
            elif self._take_word("IS"):
                negated = self._take_word("NOT")
                if not self._take_word("NULL"):
                    raise self._wrong("expected NULL" if negated else "expected NULL or NOT NULL")
                left = self._node(IsNull(left[0], negated), left[1] + 1, left[2])
            else:
                return left

    def _comparison(self) -> _Deep:
        left = self._unary()
        while True:
            at, before = self._token.at, self._next
            if self._is_sign(*_ORDERS):
                order = cast(Order, self._take().text)
                left = self._compared(left, order, self._unary(), at)
                continue
            negated = self._take_word("NOT")
            if self._take_word("BETWEEN"):
                left = self._between(left, negated, at)
            elif self._take_word("IN"):
                left = self._one_of(left, negated)
            elif self._is_like():
                left = self._like(left, negated)
            elif self._token.kind == "word" and self._token.text in _SEARCHES:
                search = cast(Search, self._take().text)
                text = self._string("the text to look for")
                left = self._node(TextSearch(left[0], search, text, negated), left[1] + 1, left[2])
            elif negated:
                raise self._wrong("expected BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH or LIKE behind NOT")
            else:
                self._next = before
                return left

    def _unary(self) -> _Deep:
        token = self._token
        if not (self._is_sign("+", "-") or self._is_word("NOT")):
            return self._primary()
        self._take()
        self._enter(token)
        value, depth, at = self._unary()
        self._open -= 1
        if token.text == "+":
            return value, depth, token.at
        if token.text == "-":
            return self._node(Negated(value), depth + 1, token.at)
        return self._node(Not(self._condition((value, depth, at))), depth + 1, token.at)

    def _primary(self) -> _Deep:
        token = self._take()
        if token.kind == "sign" and token.text == "(":
            self._enter(token)
            found = self._or()
            self._open -= 1
            if not self._take_sign(")"):
                raise self._wrong(f"expected ) for the bracket at character {token.at + 1}")
            return found
        if token.kind == "name":
            return self._node(Property(token.text), 1, token.at)
        if token.kind == "field":
            path = tuple(token.text.split(".")[1:])
            if len(path) > PATH_MAX:
                raise wrong(self._text, token.at, f"a field is at most {PATH_MAX} names deep, not {len(path)}")
            return self._node(Field(path), 1, token.at)
        return self._node(Constant(self._literal(token)), 1, token.at)

    def _literal(self, token: Token) -> str | int | float | bool | None:
        if token.kind == "string":
            return token.text
        if token.kind == "whole":
            number = int(token.text.rstrip("lL"))
            if number > LONG_MAX:
                raise wrong(self._text, token.at, f"a whole number is at most {LONG_MAX}")
            return number
        if token.kind == "float":
            value = float(token.text)
            if value == float("inf"):
                raise wrong(self._text, token.at, "a number is at most 1.7976931348623157e308")
            return value
        if token.kind == "word" and token.text in ("TRUE", "FALSE", "NULL"):
            return None if token.text == "NULL" else token.text == "TRUE"
        raise wrong(self._text, token.at, "expected a property, a literal or a bracket")

    # ------------------------------------------------------------ comparisons

    def _compared(self, left: _Deep, order: Order, right: _Deep, at: int) -> _Deep:
        """The comparison at ``at``. Raises ``InvalidFilter`` where RocketMQ does not compare these."""
        for value, _, place in (left, right):
            if order in _ORDERS:
                self._check_ordered(value, place)
            elif isinstance(value, Constant) and value.value is None:
                raise wrong(self._text, place, "nothing equals NULL; write IS NULL or IS NOT NULL")
        if (
            isinstance(left[0], Constant)
            and isinstance(right[0], Constant)
            and isinstance(left[0].value, bool)
            and not isinstance(right[0].value, bool)
        ):
            raise wrong(self._text, at, "TRUE and FALSE are compared with truth values and properties only")
        return self._node(Comparison(left[0], order, right[0]), max(left[1], right[1]) + 1, left[2])

    def _check_ordered(self, value: Value, at: int) -> None:
        if isinstance(value, _CONDITIONS):
            raise wrong(self._text, at, "a condition is neither greater nor less than something")
        if isinstance(value, Constant) and (isinstance(value.value, str | bool) or value.value is None):
            raise wrong(self._text, at, "only numbers are greater or less; a string, truth value or NULL is not")

    def _between(self, left: _Deep, negated: bool, at: int) -> _Deep:
        low = self._unary()
        if not self._take_word("AND"):
            raise self._wrong("expected AND between the ends of BETWEEN")
        high = self._unary()
        if not negated:
            self._check_ends(low, high)
        below = self._compared(left, "<" if negated else ">=", low, at)
        above = self._compared(left, ">" if negated else "<=", high, at)
        terms = (cast(Condition, below[0]), cast(Condition, above[0]))
        return self._node(Or(terms) if negated else And(terms), max(below[1], above[1]) + 1, left[2])

    def _check_ends(self, low: _Deep, high: _Deep) -> None:
        if isinstance(low[0], Constant) and isinstance(high[0], Constant):
            first, last = low[0].value, high[0].value
            numbers = isinstance(first, int | float) and isinstance(last, int | float)
            if numbers and cast(float, first) > cast(float, last):
                raise wrong(self._text, low[2], f"BETWEEN begins at {first}, which is above its end, {last}")

    def _one_of(self, left: _Deep, negated: bool) -> _Deep:
        if not isinstance(left[0], Property | Field):
            raise wrong(self._text, left[2], "IN has a property or field before it")
        if not self._take_sign("("):
            raise self._wrong("expected ( and strings behind IN")
        choices = [self._string("a string of the list")]
        while self._take_sign(","):
            if len(choices) == CHOICES_MAX:
                raise self._wrong(f"IN has at most {CHOICES_MAX} strings")
            choices.append(self._string("a string of the list"))
        if not self._take_sign(")"):
            raise self._wrong("expected , or ) in the list of IN")
        return self._node(OneOf(left[0], frozenset(choices), negated), left[1] + 1, left[2])

    def _is_like(self) -> bool:
        return self._token.kind == "name" and self._token.text.upper() == "LIKE"

    def _like(self, left: _Deep, negated: bool) -> _Deep:
        self._take()
        at = self._token.at
        pattern, escape = self._string("the pattern"), ""
        if self._token.kind == "name" and self._token.text.upper() == "ESCAPE":
            self._take()
            escape = self._string("the escape character")
        try:
            LikePattern(pattern, escape)
        except ValueError as error:
            raise wrong(self._text, at, str(error)) from None
        return self._node(Like(left[0], pattern, escape, negated), left[1] + 1, left[2])

    # ------------------------------------------------------------ pieces

    def _condition(self, found: _Deep) -> Condition:
        """The parsed text as a condition. Raises ``InvalidFilter`` if it can be none."""
        value, _, at = found
        if isinstance(value, Property | Field):
            return Truth(value)
        if isinstance(value, Negated):
            raise wrong(self._text, at, "a number is no condition; compare it with something")
        if (
            isinstance(value, Constant)
            and isinstance(value.value, str | int | float)
            and not isinstance(value.value, bool)
        ):
            raise wrong(self._text, at, "a literal is no condition; compare it with something")
        return value

    def _node(self, value: Value, depth: int, at: int) -> _Deep:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise wrong(self._text, at, f"a filter has at most {NODES_MAX} properties, literals and operations")
        if depth > DEPTH_MAX:
            raise wrong(self._text, at, f"a filter is at most {DEPTH_MAX} operations deep")
        return value, depth, at

    def _enter(self, token: Token) -> None:
        self._open += 1
        if self._open > DEPTH_MAX:
            raise wrong(self._text, token.at, f"brackets, signs and NOT stand at most {DEPTH_MAX} deep")

    def _string(self, what: str) -> str:
        if self._token.kind != "string":
            raise self._wrong(f"expected {what} in single quotes")
        return self._take().text

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _is_sign(self, *signs: str) -> bool:
        return self._token.kind == "sign" and self._token.text in signs

    def _take_sign(self, sign: str) -> bool:
        if not self._is_sign(sign):
            return False
        self._next += 1
        return True

    def _is_word(self, word: str) -> bool:
        return self._token.kind == "word" and self._token.text == word

    def _take_word(self, word: str) -> bool:
        if not self._is_word(word):
            return False
        self._next += 1
        return True

    def _wrong(self, what: str) -> InvalidFilter:
        return wrong(self._text, self._token.at, what)
