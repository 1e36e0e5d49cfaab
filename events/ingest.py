"""Takes events in: checks them against their contracts, stores them in their bus, answers where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from events.catalogue import Catalogue
from events.cloudevents import Event
from events.config_log import ConfigLog
from events.contracts import Contract
from events.problems import Problem
from events.pushing import message_of
from events.specs import Bus
from penstock import Producer, Receipt

CONTRACTS_MAX: Final = 10_000


class Ingest:
    """The way in.

    Attributes:
        received, refused, flagged: events since the start.
    """

    def __init__(self, config: ConfigLog, producer: Producer, catalogue: Catalogue) -> None:
        self._config = config
        self._producer = producer
        self._catalogue = catalogue
        self._contracts: dict[tuple[str, str], tuple[int, Contract]] = {}
        self.received = self.refused = self.flagged = 0

    async def take(self, bus: str, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Stores events; a row for each with its id and where it is, or ``error``. Raises ``Problem`` for a bus that
        is not there and for an event that breaks its contract: then none is stored."""
        fact = self._config.facts.get("bus", bus)
        if fact is None:
            raise Problem(404, "no-bus", f"there is no bus {bus!r:.80}")
        violations = Bus.of(fact.spec).violations
        if violations != "off":
            for at, event in enumerate(events):
                self._check(bus, at, event, is_flagged=violations == "flag")
        outcomes = await self._producer.send_each([message_of(bus, one) for one in events])
        rows: list[dict[str, Any]] = []
        for event, outcome in zip(events, outcomes, strict=True):
            row: dict[str, Any] = {"id": event.attributes["id"]}
            if isinstance(receipt := outcome.receipt, Receipt):
                rows.append(row | {"queue": str(receipt.queue), "offset": receipt.offset})
                self.received += 1
                self._catalogue.saw(bus, event)
            else:
                self.refused += 1
                rows.append(
                    row | {"error": str(outcome.error), "may_be_stored": bool(outcome.error and outcome.error.unknown)}
                )
        return rows

    def _check(self, bus: str, at: int, event: Event, *, is_flagged: bool) -> None:
        contract = self.contract(bus, event.attributes["type"])
        if contract is None:
            return
        faults = contract.faults(event.value)
        if not faults:
            return
        if not is_flagged:
            self.refused += 1
            raise Problem(
                422, "breaks-contract", f"event {at} breaks the contract of its type", index=at, faults=faults
            )
        self.flagged += 1
        event.attributes["schemaerror"] = "; ".join(faults)[:1_000].encode("ascii", "replace").decode()

    def contract(self, bus: str, of_type: str) -> Contract | None:
        """The contract that a type has now."""
        fact = self._config.facts.get("schema", bus, of_type)
        if fact is None:
            return None
        known = self._contracts.get((bus, of_type))
        if known is None or known[0] != fact.revision:
            if len(self._contracts) >= CONTRACTS_MAX:
                self._contracts.clear()
            known = self._contracts[bus, of_type] = (fact.revision, Contract(fact.spec["versions"][-1]["schema"]))
        return known[1]
