"""An index of many rules' patterns, by type and then source: finds the rules that may want an event. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from events.cloudevents import Event
from events.pattern import Pattern

R = TypeVar("R")
_ANY: Final = None


class PatternIndex(Generic[R]):
    """Rules by what their patterns name. Built once; a change of rules makes a new one.

    Args:
        rules: each with its pattern; None wants every event.
    """

    def __init__(self, rules: Iterable[tuple[R, Pattern | None]]) -> None:
        self._rules: dict[str | None, dict[str | None, list[tuple[R, Pattern | None]]]] = {}
        for rule, pattern in rules:
            types = pattern.texts_of("type") if pattern else None
            sources = pattern.texts_of("source") if pattern else None
            for of_type in types if types is not None else (_ANY,):
                by_source = self._rules.setdefault(of_type, {})
                for source in sources if sources is not None else (_ANY,):
                    by_source.setdefault(source, []).append((rule, pattern))

    def matching(self, event: Event) -> list[R]:
        """The rules that want an event."""
        source = event.attributes.get("source")
        found: list[R] = []
        for by_source in (self._rules.get(event.attributes.get("type", "")), self._rules.get(_ANY)):
            if by_source:
                found += _matching(by_source, source, event)
        return found


def _matching(
    by_source: Mapping[str | None, list[tuple[R, Pattern | None]]], source: str | None, event: Event
) -> list[R]:
    rules = by_source.get(_ANY, [])
    if source is not None and source in by_source:
        rules = rules + by_source[source]
    return [rule for rule, pattern in rules if pattern is None or pattern.matches(event)]
