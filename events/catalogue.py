"""The catalogue of event types: producers, a sample, the schema, the rules that may want them.

It has the types that came over HTTP, that a rule has read, and that have a schema. A new type is written into the
configuration once, with its first event as the sample. Pure: it returns the values to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from events.cloudevents import Event, to_document
from events.facts import Fact, Facts
from events.pattern import Pattern
from events.problems import Problem
from events.specs import TYPE

TYPES_MAX: Final = 1_000
SOURCES_MAX: Final = 20
SAMPLE_BYTES_MAX: Final = 4_096

_Types = frozenset[str] | None


class Catalogue:
    """The types that this instance has seen, and those that the configuration knows."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._seen: dict[tuple[str, str], list[Any]] = {}  # bus and type -> count, sources
        self._new: list[tuple[str, str, Any]] = []

    def saw(self, bus: str, event: Event) -> None:
        """Counts an event that came over HTTP and was stored."""
        known = self._note(bus, event)
        if known is not None:
            known[0] += 1

    def noticed(self, bus: str, event: Event) -> None:
        """Takes note of the type of an event that a rule has read, however it came."""
        self._note(bus, event)

    def _note(self, bus: str, event: Event) -> list[Any] | None:
        of_type, source = event.attributes["type"], event.attributes["source"]
        known = self._seen.get((bus, of_type))
        if known is None:
            if len(self._seen) >= TYPES_MAX or not TYPE.fullmatch(of_type):
                return None
            known = self._seen[bus, of_type] = [0, {}]
            if self._facts.get("type", bus, of_type) is None:
                self._new.append((bus, of_type, _sample(event)))
        if source not in known[1] and len(known[1]) < SOURCES_MAX:
            known[1][source] = True
        return known

    def take_new(self) -> list[tuple[str, str, Any]]:
        """Bus, type and value of the facts to write."""
        new, self._new = self._new, []
        return new

    def rows(self, bus: str | None = None) -> list[dict[str, Any]]:
        """The catalogue of one bus, or of all."""
        known = {(one.bus, one.name): one for one in self._facts.all("type", bus)}
        schemas = {(one.bus, one.name): one.spec["versions"] for one in self._facts.all("schema", bus)}
        places = known.keys() | schemas.keys() | {at for at in self._seen if bus in (None, at[0])}
        rules = [(one, _types_of(one)) for one in self._facts.all("rule", bus)]
        return [self._row(*at, known.get(at), schemas.get(at), rules) for at in sorted(places)]

    def _row(
        self,
        bus: str,
        of_type: str,
        fact: Fact | None,
        versions: list[Any] | None,
        rules: Iterable[tuple[Fact, _Types]],
    ) -> dict[str, Any]:
        count, sources = self._seen.get((bus, of_type), (0, {}))
        sample = fact.spec.get("sample") if fact else None
        producers = sorted({*sources, *([sample["source"]] if sample else [])})
        wanted = [one.name for one, types in rules if one.bus == bus and (types is None or of_type in types)]
        row = {"bus": bus, "type": of_type, "seen": count, "producers": producers, "rules": wanted}
        contract = versions[-1]["schema"] if versions else None
        return row | {"schema": versions is not None, "contract": contract, "sample": sample}


def _sample(event: Event) -> dict[str, Any]:
    is_small = event.data is None or len(event.data) <= SAMPLE_BYTES_MAX
    return {"sample": to_document(event if is_small else Event(event.attributes))}


def _types_of(rule: Fact) -> _Types:
    """The types that a rule's pattern leaves room for; None for any."""
    given = rule.spec.get("pattern")
    if given is None:
        return None
    try:
        return Pattern(given).texts_of("type")
    except Problem:
        return frozenset()
