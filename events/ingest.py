"""Takes events in: checks them against their contracts, stores them in their bus, answers where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from events.catalogue import Catalogue
from events.cloudevents import Event
from events.config_log import ConfigLog
from events.contract_book import ContractBook, flag
from events.problems import Problem
from events.pushing import message_of
from penstock import Producer, Receipt
from penstock.errors import PenstockError, SendManyError
from penstock.protocol.message import BODY_BYTES_MAX


class Ingest:
    """The way in.

    Attributes:
        received, refused, flagged: events since the start.
    """

    def __init__(self, config: ConfigLog, producer: Producer, catalogue: Catalogue, contracts: ContractBook) -> None:
        self._config = config
        self._producer = producer
        self._catalogue = catalogue
        self._contracts = contracts
        self.received = self.refused = self.flagged = 0

    async def take(self, bus: str, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Stores events; a row for each with its id and where it is, or ``error``. Raises ``Problem`` for a bus that
        is not there and for an event that is too large or breaks its contract: then none is stored."""
        if self._config.facts.get("bus", bus) is None:
            raise Problem(404, "no-bus", f"there is no bus {bus!r:.80}")
        for at, event in enumerate(events):
            if event.data is not None and len(event.data) > BODY_BYTES_MAX:
                told = f"event {at} has {len(event.data)} bytes of data, at most {BODY_BYTES_MAX} are allowed"
                raise Problem(413, "too-large", told, index=at)
        violations = self._contracts.violations(bus)
        if violations != "off":
            for at, event in enumerate(events):
                self._check(bus, at, event, is_flagged=violations == "flag")
        messages = [message_of(bus, one) for one in events]
        results: Sequence[object]
        try:
            results = await self._producer.send_many(messages)
        except SendManyError as error:
            results = [error.failures[at] if one is None else one for at, one in enumerate(error.receipts)]
        return [self._row(bus, event, result) for event, result in zip(events, results, strict=True)]

    def _row(self, bus: str, event: Event, result: object) -> dict[str, Any]:
        """The answer about an event. ``result``: its receipt, or why it is not stored for certain."""
        id = event.attributes["id"]
        if not isinstance(result, Receipt):
            self.refused += 1
            return {
                "id": id,
                "error": str(result),
                "may_be_stored": isinstance(result, PenstockError) and result.unknown,
            }
        self.received += 1
        self._catalogue.saw(bus, event)
        return {"id": id, "queue": str(result.queue), "offset": result.offset}

    def _check(self, bus: str, at: int, event: Event, *, is_flagged: bool) -> None:
        faults = self._contracts.faults(bus, event)
        if not faults:
            return
        if not is_flagged:
            self.refused += 1
            raise Problem(
                422, "breaks-contract", f"event {at} breaks the contract of its type", index=at, faults=faults
            )
        self.flagged += 1
        flag(event, faults)
