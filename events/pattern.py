"""Patterns: JSON objects that choose a rule's events, compiled once to closures. docs/formats/events.md has the
grammar.

Keys are joined by *and*, the terms of one array by *or*. A value that is an array matches if any element does, and an
object pattern on an array needs one element that satisfies all of it. Types are strict: ``300`` is not ``"300"``.
Attributes of an event are text; a number or boolean for one means its text. Bounded: 10 levels, 256 terms. Pure.
"""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from events.cloudevents import Event
from events.problems import invalid_config

LEVELS_MAX: Final = 10
TERMS_MAX: Final = 256
TEXT_MAX: Final = 1_024
PUSHED: Final = ("type", "source", "subject")

Test = Callable[[Any], bool]
"""Judges one scalar."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Missing:
    """The value of a place where an event has nothing."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()


class _Budget:
    """How many terms a pattern may still have."""

    def __init__(self) -> None:
        self.terms = TERMS_MAX

    def take(self, where: str) -> None:
        self.terms -= 1
        if self.terms < 0:
            raise invalid_config(f"a pattern has at most {TERMS_MAX} terms", where)


class Leaf:
    """The array at the end of a path: one of its terms must hold.

    Attributes:
        where: the JSON pointer in the pattern.
        texts: those that it wants, if it wants nothing but texts; else None.
        test: whether a value, or ``MISSING``, satisfies it.
    """

    __slots__ = ("_absent", "_present", "_tests", "terms", "test", "texts", "where")

    def __init__(self, terms: object, where: str, is_attribute: bool, budget: _Budget) -> None:
        if not isinstance(terms, list) or not terms:
            raise invalid_config(f"expected an array of terms, not {terms!r:.60}", where)
        self.where, self.terms = where, terms
        self._present = self._absent = False
        self._tests: list[Test] = []
        texts: set[str] = set()
        for at, term in enumerate(terms):
            budget.take(f"{where}/{at}")
            if is_attribute and isinstance(term, bool | int):
                term = str(term).lower()
            if isinstance(term, str):
                texts.add(_text(term, f"{where}/{at}", may_be_empty=True))
            elif isinstance(term, dict) and set(term) == {"exists"}:
                self._set_exists(term["exists"], f"{where}/{at}/exists")
            else:
                self._tests.append(_test_of(term, f"{where}/{at}", is_attribute))
        wanted = frozenset(texts)
        only_texts = wanted and not self._tests and not self._present and not self._absent
        self.texts = wanted if only_texts else None
        if wanted:
            self._tests.insert(0, lambda value: isinstance(value, str) and value in wanted)
        self.test: Test = _is_among(wanted) if only_texts else _judged(self._tests, self._present, self._absent)

    def _set_exists(self, wanted: object, where: str) -> None:
        if wanted is True:
            self._present = True
        elif wanted is False:
            self._absent = True
        else:
            raise invalid_config("exists is true or false", where)


def _is_among(wanted: frozenset[str]) -> Test:
    """Whether a value is one of some texts, or an array with one of them."""

    def test(value: Any) -> bool:
        if type(value) is str:
            return value in wanted
        return isinstance(value, list) and any([test(one) for one in value])

    return test


def _judged(tests: list[Test], present: bool, absent: bool) -> Test:
    """Whether a value is there, is missing, or holds a scalar of which one of the tests is true."""
    single = tests[0] if len(tests) == 1 else None
    if single is not None and not present and not absent:
        return _of_single(single)

    def test(value: Any) -> bool:
        if value is MISSING:
            return absent
        if present:
            return True
        if isinstance(value, list):
            return any([test(one) for one in value])
        if isinstance(value, dict):
            return False
        return any([one(value) for one in tests])

    return test


def _of_single(single: Test) -> Test:
    """Whether a value is a scalar of which the test is true, or an array with one."""

    def test(value: Any) -> bool:
        kind = type(value)
        if kind is str or kind is int or kind is float:
            return single(value)
        if kind is list:
            return any([test(one) for one in value])
        return kind is not dict and value is not MISSING and single(value)

    return test


class Branch:
    """An object pattern: all its keys, and one alternative of its ``$or``, must hold."""

    __slots__ = ("alternatives", "children", "test")

    def __init__(self, spec: object, where: str, level: int, budget: _Budget) -> None:
        if not isinstance(spec, dict) or not spec:
            raise invalid_config(f"expected an object with keys, not {spec!r:.60}", where)
        if level > LEVELS_MAX:
            raise invalid_config(f"a pattern has at most {LEVELS_MAX} levels", where)
        self.children: list[tuple[str, Leaf | Branch]] = []
        self.alternatives: list[Branch] = []
        for key, one in spec.items():
            at = f"{where}/{key.replace('~', '~0').replace('/', '~1')}"
            if key == "$or":
                if not isinstance(one, list) or len(one) < 2:
                    raise invalid_config("$or is an array of two or more objects", at)
                self.alternatives = [Branch(each, f"{at}/{n}", level + 1, budget) for n, each in enumerate(one)]
                for _ in one:
                    budget.take(at)
            elif isinstance(one, dict):
                self.children.append((key, Branch(one, at, level + 1, budget)))
            else:
                is_attribute = key != "data" and "/data" not in f"{where}/"
                self.children.append((key, Leaf(one, at, is_attribute, budget)))
        self.test: Test = _all_of(
            [(key, child.test) for key, child in self.children], [one.test for one in self.alternatives]
        )

    def leaves(self) -> list[Leaf]:
        """All leaves below it."""
        found: list[Leaf] = []
        for _, child in self.children:
            found += [child] if isinstance(child, Leaf) else child.leaves()
        for one in self.alternatives:
            found += one.leaves()
        return found


def _all_of(children: list[tuple[str, Test]], alternatives: list[Test]) -> Test:
    """Whether a value, or ``MISSING``, satisfies an object pattern."""

    def test(value: Any) -> bool:
        if isinstance(value, list) and value:
            return any([test(one) for one in value])
        if isinstance(value, dict):
            for key, child in children:
                if not child(value.get(key, MISSING)):
                    return False
        else:
            for _, child in children:
                if not child(MISSING):
                    return False
        return not alternatives or any([one(value) for one in alternatives])

    return test


class Pattern:
    """A compiled pattern. Raises ``Problem`` for one that cannot be compiled."""

    def __init__(self, spec: object) -> None:
        try:
            self._root = Branch(spec, "", 1, _Budget())
        except RecursionError:
            raise invalid_config(f"a pattern has at most {LEVELS_MAX} levels") from None
        self._reads_data = any("/data" in leaf.where for leaf in self._root.leaves())
        self._attribute_tests = [(key, child.test) for key, child in self._root.children if key != "data"]
        self._data_tests = [child.test for key, child in self._root.children if key == "data"]

    def matches(self, event: Event) -> bool:
        """Whether the rule wants it. The data is read only where the attributes are as wanted."""
        attributes = event.attributes
        for key, test in self._attribute_tests:
            if not test(attributes.get(key, MISSING)):
                return False
        for test in self._data_tests:
            if not test(MISSING if event.data is None else event.value):
                return False
        alternatives = self._root.alternatives
        if not alternatives:
            return True
        document = event.document() if self._reads_data else attributes
        return any([one.test(document) for one in alternatives])

    def texts_of(self, name: str) -> frozenset[str] | None:
        """The texts that an attribute may have for the event to match; None where any may do."""
        for key, child in self._root.children:
            if key == name and isinstance(child, Leaf):
                return child.texts
        return None

    def selector(self) -> str:
        """The SQL-92 selector that leaves out stored events that cannot match by type, source and subject. A message
        that is no stored event has no such property and passes: it may be mapped to one."""
        parts = []
        for name in PUSHED:
            texts = self.texts_of(name)
            if texts is not None and len(texts) <= 32 and all([_is_plain(text) for text in texts]):
                wanted = ", ".join([f"'{text}'" for text in sorted(texts)])
                parts.append(f"(CE_{name} IS NULL OR CE_{name} IN ({wanted}))")
        return " AND ".join(parts)

    def explain(self, event: Event) -> list[dict[str, Any]]:
        """For each single term of the pattern: the wanted and the found value, and whether they match."""
        document = event.document()
        rows = []
        for leaf in self._root.leaves():
            found: Any = document
            for key in leaf.where.split("/")[1:]:
                name = key.replace("~1", "/").replace("~0", "~")
                if name != "$or" and not (name.isdigit() and "/$or/" in leaf.where):
                    found = found.get(name, MISSING) if isinstance(found, dict) else MISSING
            shown = None if found is MISSING else found
            row = {"pointer": leaf.where, "wanted": leaf.terms, "found": shown, "is_there": found is not MISSING}
            rows.append(row | {"matches": leaf.test(found)})
        return rows


def _is_plain(text: str) -> bool:
    return len(text) <= 256 and "'" not in text and text.isprintable()


def _text(value: object, where: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX or not (value or may_be_empty):
        raise invalid_config(f"expected a text of 1 to {TEXT_MAX} characters, not {value!r:.60}", where)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _test_of(term: object, where: str, is_attribute: bool) -> Test:
    """The test of a scalar for a term other than a text. Raises ``Problem``."""
    if term is None:
        return lambda value: value is None
    if isinstance(term, bool):
        return lambda value: value is term
    if _is_number(term):
        return lambda value: _is_number(value) and value == term
    if isinstance(term, dict) and len(term) == 1:
        [(word, given)] = term.items()
        if word == "numeric":
            return _numeric(given, f"{where}/numeric", is_attribute)
        if word in _MAKERS:
            return _MAKERS[word](given, f"{where}/{word}")
    known = ", ".join(sorted([*_MAKERS, "exists", "numeric"]))
    raise invalid_config(f"expected a scalar or an object with one of {known}, not {term!r:.80}", where)


def _numeric(given: object, where: str, is_attribute: bool) -> Test:
    if not isinstance(given, list) or len(given) not in (2, 4):
        raise invalid_config('numeric is one comparison or two, as [">", 0, "<=", 5]', where)
    comparisons = []
    for word, bound in zip(given[::2], given[1::2], strict=True):
        if not isinstance(word, str) or word not in _COMPARISONS or not _is_number(bound):
            raise invalid_config(f"a comparison has one of {' '.join(_COMPARISONS)} and a number", where)
        comparisons.append((_COMPARISONS[word], bound))

    if len(comparisons) == 1 and not is_attribute:
        [(only, limit)] = comparisons
        return lambda value: (type(value) is int or type(value) is float) and only(value, limit)

    def test(value: Any) -> bool:
        if is_attribute and isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        return _is_number(value) and all([compare(value, bound) for compare, bound in comparisons])

    return test


def _affix(name: str) -> Callable[[object, str], Test]:
    def make(given: object, where: str) -> Test:
        if isinstance(given, dict) and set(given) == {"equals-ignore-case"}:
            folded = _text(given["equals-ignore-case"], where).casefold()
            if name == "prefix":
                return lambda value: isinstance(value, str) and value.casefold().startswith(folded)
            return lambda value: isinstance(value, str) and value.casefold().endswith(folded)
        text = _text(given, where)
        if name == "prefix":
            return lambda value: type(value) is str and value.startswith(text)
        return lambda value: isinstance(value, str) and value.endswith(text)

    return make


def _contains(given: object, where: str) -> Test:
    text = _text(given, where)
    return lambda value: isinstance(value, str) and text in value


def _ignore_case(given: object, where: str) -> Test:
    folded = _text(given, where, may_be_empty=True).casefold()
    return lambda value: isinstance(value, str) and value.casefold() == folded


def _cidr(given: object, where: str) -> Test:
    try:
        network = ipaddress.ip_network(_text(given, where), strict=False)
    except ValueError:
        raise invalid_config(f"{given!r:.60} is no network as in 10.0.0.0/8", where) from None

    def test(value: Any) -> bool:
        try:
            return isinstance(value, str) and ipaddress.ip_address(value) in network
        except ValueError:
            return False

    return test


def _wildcard(given: object, where: str) -> Test:
    pieces, literal, escaped = list[str](), "", False
    for one in _text(given, where):
        if escaped:
            if one not in "*\\":
                raise invalid_config("a backslash stands before * or another backslash", where)
            literal, escaped = literal + one, False
        elif one == "\\":
            escaped = True
        elif one == "*":
            if pieces and not literal:
                raise invalid_config("two * follow each other", where)
            pieces.append(literal)
            literal = ""
        else:
            literal += one
    if escaped:
        raise invalid_config("a backslash stands before * or another backslash", where)
    pieces.append(literal)
    if len(pieces) == 1:
        return lambda value: bool(value == literal)
    first, *middle, last = pieces
    return lambda value: isinstance(value, str) and _fits(value, first, middle, last)


def _fits(value: str, first: str, middle: list[str], last: str) -> bool:
    """Whether a text has these pieces in this order. The leftmost place of each is the best, so nothing is tried
    twice."""
    end = len(value) - len(last)
    if not value.startswith(first) or not value.endswith(last) or end < len(first):
        return False
    at = len(first)
    for piece in middle:
        at = value.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _anything_but(given: object, where: str) -> Test:
    if isinstance(given, dict) and len(given) == 1:
        [(word, inner)] = given.items()
        if word not in ("prefix", "suffix", "wildcard", "equals-ignore-case", "contains", "cidr"):
            raise invalid_config(f"anything-but does not take {word!r:.40}", where)
        refused = [_MAKERS[word](one, where) for one in (inner if isinstance(inner, list) else [inner])]
    else:
        values = given if isinstance(given, list) else [given]
        refused = [_scalar(one, where) for one in values]
    if not refused:
        raise invalid_config("anything-but names one value or more", where)
    if len(refused) > TERMS_MAX:
        raise invalid_config(f"anything-but names at most {TERMS_MAX} values", where)
    if len(refused) == 1:
        [only] = refused
        return lambda value: not only(value)
    return lambda value: not any([test(value) for test in refused])


def _scalar(given: object, where: str) -> Test:
    if isinstance(given, str):
        return lambda value: bool(value == given)
    if given is None or isinstance(given, bool) or _is_number(given):
        return _test_of(given, where, False)
    raise invalid_config(f"anything-but takes scalars, not {given!r:.60}", where)


_MAKERS: Final[Mapping[str, Callable[[object, str], Test]]] = {
    "prefix": _affix("prefix"),
    "suffix": _affix("suffix"),
    "contains": _contains,
    "equals-ignore-case": _ignore_case,
    "cidr": _cidr,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
}
