"""The contracts of the configuration, compiled once, and what a bus does with an event that breaks its own. Pure."""

from __future__ import annotations

import math
from typing import Final

from events.cloudevents import Event
from events.contracts import Contract
from events.facts import Facts
from events.specs import Bus

CONTRACTS_MAX: Final = 10_000
FAULTS_CHARACTERS_MAX: Final = 1_000


class ContractBook:
    """Contracts by bus and event type."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._contracts: dict[tuple[str, str], tuple[int, int, Contract]] = {}  # revision, since when, contract
        self._violations: dict[str, tuple[int, str]] = {}

    def violations(self, bus: str) -> str:
        """The bus's action for an event that breaks its contract: ``reject``, ``flag`` or ``off``."""
        fact = self._facts.get("bus", bus)
        if fact is None:
            return "off"
        known = self._violations.get(bus)
        if known is None or known[0] != fact.revision:
            known = self._violations[bus] = (fact.revision, Bus.of(fact.spec).violations)
        return known[1]

    def faults(self, bus: str, event: Event, stored_ms: float = math.inf) -> list[str]:
        """The reasons why an event breaks its contract; empty if it does not. ``stored_ms``: when it was stored; a
        contract does not count for events that were stored before its present version."""
        found = self._contract(bus, event.attributes["type"])
        if found is None or stored_ms < found[0]:
            return []
        return found[1].faults(event.value)

    def _contract(self, bus: str, of_type: str) -> tuple[int, Contract] | None:
        """The contract that a type has now, and when its version was made."""
        fact = self._facts.get("schema", bus, of_type)
        if fact is None:
            return None
        known = self._contracts.get((bus, of_type))
        if known is None or known[0] != fact.revision:
            if len(self._contracts) >= CONTRACTS_MAX:
                self._contracts.clear()
            version = fact.spec["versions"][-1]
            since_ms = version.get("since_ms", fact.created_ms)
            known = self._contracts[bus, of_type] = (fact.revision, since_ms, Contract(version["schema"]))
        return known[1:]


def flag(event: Event, faults: list[str]) -> None:
    """Notes in the event itself why it breaks its contract."""
    event.attributes["schemaerror"] = "; ".join(faults)[:FAULTS_CHARACTERS_MAX].encode("ascii", "replace").decode()
