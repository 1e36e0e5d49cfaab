"""A selector that runs: conditions that judge one message, built once for a text (``compiling``).

A judgement is true, false, unknown (three-valued, as SQL's), or an error, which ends it: as in RocketMQ a message is
delivered only if all is true that was looked at, and AND and OR look no further than they must. A message's properties
are looked up in its bytes and never decoded as a whole.
"""

from __future__ import annotations

from typing import Final

from penstock.protocol.selectors.like import LikePattern
from penstock.protocol.selectors.values import (
    ERROR,
    FAILED,
    FALSE,
    TRUE,
    UNKNOWN,
    Subject,
    compare,
    double_of,
    order_of,
    property_value,
    whole_end,
    whole_of,
)

LESS: Final = 1
SAME: Final = 2
MORE: Final = 4
"""The answers of ``compare`` for which a comparison is true."""


class _Failure:
    """The value of an operand that cannot be told."""


_FAILURE: Final = _Failure()


class Operand:
    """A source of a value: a string as UTF-8, a number, a truth value, ``None`` for NULL, or ``_FAILURE``."""

    def value(self, subject: Subject) -> object:
        raise NotImplementedError


class PropertyOperand(Operand):
    """Value of a property of the message."""

    def __init__(self, name: bytes) -> None:
        self.first = name + b"\x01"
        self.later = b"\x02" + self.first

    def value(self, subject: Subject) -> object:
        return property_value(subject.properties, self.first, self.later)


class FieldOperand(Operand):
    """Value of a field of the message."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def value(self, subject: Subject) -> object:
        return subject.field(self._path)


class ConstantOperand(Operand):
    """Value that is the same for all messages."""

    def __init__(self, value: object) -> None:
        self._value = value

    def value(self, subject: Subject) -> object:
        return self._value


class NegatedOperand(Operand):
    """NULL for what is no number."""

    def __init__(self, of: Operand) -> None:
        self._of = of

    def value(self, subject: Subject) -> object:
        value = self._of.value(subject)
        if isinstance(value, _Failure):
            return value
        if isinstance(value, bool):
            return None
        if isinstance(value, int):
            return -value
        if isinstance(value, float):
            return -value
        return None


class Condition:
    """A condition, which is ``TRUE``, ``FALSE``, ``UNKNOWN`` or an ``ERROR``."""

    def judge(self, subject: Subject) -> int:
        raise NotImplementedError


class JudgedOperand(Operand):
    """A condition where a value is asked for."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition

    def value(self, subject: Subject) -> object:
        found = self._condition.judge(subject)
        if found == ERROR:
            return _FAILURE
        return None if found == UNKNOWN else found == TRUE


class Known(Condition):
    """TRUE, FALSE or NULL itself."""

    def __init__(self, found: int) -> None:
        self._found = found

    def judge(self, subject: Subject) -> int:
        return self._found


class Truth(Condition):
    """Condition that is a value: whether it is TRUE."""

    def __init__(self, operand: Operand) -> None:
        self._operand = operand

    def judge(self, subject: Subject) -> int:
        value = self._operand.value(subject)
        if value is None:
            return UNKNOWN
        return TRUE if value is True else FALSE


class Not(Condition):
    """Negation; unknown stays unknown."""

    def __init__(self, term: Condition) -> None:
        self._term = term

    def judge(self, subject: Subject) -> int:
        found = self._term.judge(subject)
        return 1 - found if found <= TRUE else found


class And(Condition):
    """Conjunction in three-valued logic."""

    def __init__(self, terms: list[Condition]) -> None:
        self._terms = terms

    def judge(self, subject: Subject) -> int:
        found = TRUE
        for term in self._terms:
            one = term.judge(subject)
            if one in (FALSE, ERROR):
                return one
            if one == UNKNOWN:
                found = UNKNOWN
        return found


class Or(Condition):
    """Disjunction in three-valued logic."""

    def __init__(self, terms: list[Condition]) -> None:
        self._terms = terms

    def judge(self, subject: Subject) -> int:
        found = FALSE
        for term in self._terms:
            one = term.judge(subject)
            if one in (TRUE, ERROR):
                return one
            if one == UNKNOWN:
                found = UNKNOWN
        return found


class Equality(Condition):
    """``=`` and ``<>``: unknown if only the left side is NULL; false, and true, if only the right side is."""

    def __init__(self, left: Operand, accepts: int, right: Operand) -> None:
        self._left = left
        self._accepts = accepts
        self._right = right

    def judge(self, subject: Subject) -> int:
        left = self._left.value(subject)
        if isinstance(left, _Failure):
            return ERROR
        right = self._right.value(subject)
        if isinstance(right, _Failure):
            return ERROR
        if left is None or right is None:
            if left is None and right is not None:
                return UNKNOWN
            answer = 0 if left is None else -1
        else:
            answer = compare(left, right)
        return ERROR if answer == FAILED else self._accepts >> (answer + 1) & 1


class TextEquality(Condition):
    """The same of a property and a string."""

    def __init__(self, name: bytes, accepts: int, text: bytes) -> None:
        self._first = name + b"\x01"
        self._later = b"\x02" + self._first
        self._same = TRUE if accepts == SAME else FALSE
        self._text = text

    def judge(self, subject: Subject) -> int:
        value = property_value(subject.properties, self._first, self._later)
        if value is None:
            return UNKNOWN
        return self._same if value == self._text else 1 - self._same


class Ordering(Condition):
    """``< <= > >=``: between numbers, or strings that are both numbers."""

    def __init__(self, left: Operand, accepts: int, right: Operand) -> None:
        self._left = left
        self._accepts = accepts
        self._right = right

    def judge(self, subject: Subject) -> int:
        left = self._left.value(subject)
        if left is None:
            return UNKNOWN
        right = self._right.value(subject)
        if isinstance(left, _Failure) or isinstance(right, _Failure):
            return ERROR
        if right is None:
            return UNKNOWN
        if isinstance(left, bool) or isinstance(right, bool):
            return ERROR
        if isinstance(left, bytes) and isinstance(right, bytes):
            first, last = double_of(left), double_of(right)
            if first is None or last is None:
                return ERROR
            return self._accepts >> (order_of(first, last) + 1) & 1
        answer = compare(left, right)
        return ERROR if answer == FAILED else self._accepts >> (answer + 1) & 1


class WholeComparison(Condition):
    """A comparison of a property with a whole number."""

    def __init__(self, name: bytes, accepts: int, number: int) -> None:
        self._first = name + b"\x01"
        self._later = b"\x02" + self._first
        self._accepts = accepts
        self._number = number
        self._end = whole_end(number)

    def judge(self, subject: Subject) -> int:
        value = property_value(subject.properties, self._first, self._later)
        if value is None:
            return UNKNOWN
        number = whole_of(value, self._end)
        if number is None:
            return ERROR
        if number == self._number:
            return self._accepts >> 1 & 1
        return self._accepts & 1 if number < self._number else self._accepts >> 2 & 1


class DoubleComparison(Condition):
    """A comparison of a property with a number that has a point or an exponent."""

    def __init__(self, name: bytes, accepts: int, number: float) -> None:
        self._first = name + b"\x01"
        self._later = b"\x02" + self._first
        self._accepts = accepts
        self._number = number

    def judge(self, subject: Subject) -> int:
        value = property_value(subject.properties, self._first, self._later)
        if value is None:
            return UNKNOWN
        number = double_of(value)
        if number is None:
            return ERROR
        return self._accepts >> (order_of(number, self._number) + 1) & 1


class IsNull(Condition):
    """Test for a missing value."""

    def __init__(self, operand: Operand, negated: bool) -> None:
        self._operand = operand
        self._negated = negated

    def judge(self, subject: Subject) -> int:
        value = self._operand.value(subject)
        if isinstance(value, _Failure):
            return ERROR
        return TRUE if (value is None) != self._negated else FALSE


class OneOf(Condition):
    """IN: unknown for NULL, and for what is no string."""

    def __init__(self, operand: Operand, choices: frozenset[bytes], negated: bool) -> None:
        self._operand = operand
        self._choices = choices
        self._negated = negated

    def judge(self, subject: Subject) -> int:
        value = self._operand.value(subject)
        if not isinstance(value, bytes):
            return UNKNOWN
        return TRUE if (value in self._choices) != self._negated else FALSE


class TextSearch(Condition):
    """CONTAINS, STARTSWITH, ENDSWITH: false for NULL, for what is no string and if the text is empty, also negated."""

    def __init__(self, operand: Operand, search: str, text: bytes, negated: bool) -> None:
        self._operand = operand
        self._starts = search == "STARTSWITH"
        self._ends = search == "ENDSWITH"
        self._text = text
        self._negated = negated

    def judge(self, subject: Subject) -> int:
        value = self._operand.value(subject) if self._text else None
        if isinstance(value, _Failure):
            return ERROR
        if not isinstance(value, bytes):
            return FALSE
        if self._starts:
            found = value.startswith(self._text)
        elif self._ends:
            found = value.endswith(self._text)
        else:
            found = self._text in value
        return TRUE if found != self._negated else FALSE


class Like(Condition):
    """Unknown for NULL and for what is no string."""

    def __init__(self, operand: Operand, pattern: LikePattern, negated: bool) -> None:
        self._operand = operand
        self._pattern = pattern
        self._negated = negated

    def judge(self, subject: Subject) -> int:
        value = self._operand.value(subject)
        if isinstance(value, _Failure):
            return ERROR
        if not isinstance(value, bytes):
            return UNKNOWN
        return TRUE if self._pattern.matches(value) != self._negated else FALSE
