"""The tree of a selector: what a text says, with nothing of how it is written.

BETWEEN is two comparisons, as in RocketMQ; ``And`` and ``Or`` have all their terms side by side, so that long chains
are not deep.
"""

from __future__ import annotations

from typing import Literal

from penstock.values import value

Order = Literal["=", "<>", "<", "<=", ">", ">="]
Search = Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]


@value
class Property:
    """A property of the message, by name."""

    name: str


@value
class Field:
    """A field of a JSON body, by the names that lead to it."""

    path: tuple[str, ...]


@value
class Constant:
    """A string, number, truth value or NULL (``None``)."""

    value: str | int | float | bool | None


@value
class Negated:
    """A number with its sign turned."""

    value: Value


@value
class Truth:
    """A property or field in the place of a condition: true only if it is the truth value, which no property is."""

    value: Property | Field


@value
class Not:
    """Negation."""

    term: Condition


@value
class And:
    """Conjunction."""

    terms: tuple[Condition, ...]


@value
class Or:
    """Disjunction."""

    terms: tuple[Condition, ...]


@value
class Comparison:
    """Two values and the order to test."""

    left: Value
    order: Order
    right: Value


@value
class IsNull:
    """``IS NULL`` or ``IS NOT NULL``."""

    value: Value
    negated: bool


@value
class OneOf:
    """IN."""

    value: Property | Field
    choices: frozenset[str]
    negated: bool


@value
class TextSearch:
    """``CONTAINS``, ``STARTSWITH`` or ``ENDSWITH``."""

    value: Value
    search: Search
    text: str
    negated: bool


@value
class Like:
    """``escape``: empty for none."""

    value: Value
    pattern: str
    escape: str
    negated: bool


Condition = Truth | Not | And | Or | Comparison | IsNull | OneOf | TextSearch | Like | Constant
"""What is true, false or unknown. A ``Constant`` among them is no string and no number."""
Value = Property | Field | Constant | Negated | Condition
