"""Bounds for JSONPath: the nodes that a query may visit, the queries within filters, and regular expressions whose time
grows only with the text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment
from jsonpath.filter import FilterQuery, RootFilterQuery, walk
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import JSONPathMatch
from jsonpath.segments import JSONPathRecursiveDescentSegment
from jsonpath.selectors import Filter
from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

VISITS_MAX: Final = 100_000
"""Nodes that one query visits at most, about half a second."""
EXPRESSIONS_MAX: Final = 256
_BUDGET: Final = "budget"


class TooManyNodes(Exception):
    """A query that visits more than ``VISITS_MAX`` nodes."""


class _Budget:
    """The nodes that a query may still visit."""

    def __init__(self) -> None:
        self.left = VISITS_MAX


class _Node(JSONPathMatch):
    """A node of a query, counted."""

    __slots__ = ()

    def __init__(self, *, filter_context: Mapping[str, Any], **node: Any) -> None:
        budget = filter_context[_BUDGET]
        budget.left -= 1
        if budget.left < 0:
            raise TooManyNodes(f"it visits more than {VISITS_MAX} nodes")
        super().__init__(filter_context=filter_context, **node)


def nodes_of(path: JSONPath, document: Mapping[str, Any]) -> Iterable[JSONPathMatch]:
    """The nodes that a query finds, as they are found. Raises ``TooManyNodes``."""
    root = _Node(filter_context={_BUDGET: _Budget()}, obj=document, parent=None, path="$", parts=(), root=document)
    nodes: Iterable[JSONPathMatch] = [root]
    for segment in path.segments:
        nodes = segment.resolve(nodes)
    return nodes


def check_filters(path: JSONPath) -> None:
    """Raises ``ValueError`` for a query that has, within a filter, ``$`` or ``..``: it would read the whole event again
    for each node."""
    for segment in path.segments:
        for selector in segment.selectors:
            if not isinstance(selector, Filter):
                continue
            for one in walk(selector.expression):
                if isinstance(one, RootFilterQuery):
                    raise ValueError("a filter has no query that begins with $")
                if isinstance(one, FilterQuery):
                    if any([isinstance(each, JSONPathRecursiveDescentSegment) for each in one.path.segments]):
                        raise ValueError("a filter has no query with ..")
                    check_filters(one.path)


class RegexFunction(FilterFunction):
    """The functions ``match`` and ``search``. ``is_whole``: the expression stands for the whole text."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012
    return_type = ExpressionType.LOGICAL

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._known: dict[str, Draft202012Validator | None] = {}

    def __call__(self, value: object, pattern: object) -> bool:
        """Whether the text fits. A wrong expression fits nothing, as RFC 9535 says."""
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        if pattern not in self._known:
            if len(self._known) >= EXPRESSIONS_MAX:
                self._known.clear()
            self._known[pattern] = _compiled(f"^(?:{pattern})$" if self._is_whole else pattern)
        expression = self._known[pattern]
        return expression is not None and expression.is_valid(value)


def _compiled(expression: str) -> Draft202012Validator | None:
    try:
        return Draft202012Validator({"pattern": expression}, pattern_options=RegexOptions())
    except (ValidationError, ValueError):
        return None


class BoundedPaths(JSONPathEnvironment):
    """Compiles paths."""

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = RegexFunction(is_whole=True)
        self.function_extensions["search"] = RegexFunction(is_whole=False)
