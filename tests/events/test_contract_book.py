from __future__ import annotations

import pytest

from events.cloudevents import Event, from_document
from events.contract_book import ContractBook, flag
from events.facts import Facts
from tests.events.stored import stored

SCHEMA = {"type": "object", "required": ["n"]}


def book(*, violations: str = "reject", since_ms: int | None = 500) -> ContractBook:
    facts = Facts()
    facts.fold(stored(1, "bus/b/", {"violations": violations}))
    version = {"version": 1, "schema": SCHEMA} | ({} if since_ms is None else {"since_ms": since_ms})
    facts.fold(stored(2, "schema/b/t", {"versions": [version]}, stored_ms=300))
    return ContractBook(facts)


def event(data: object, of_type: str = "t") -> Event:
    return from_document({"specversion": "1.0", "id": "1", "source": "/s", "type": of_type, "data": data})


def test_an_event_is_held_against_the_contract_of_its_type() -> None:
    contracts = book()
    assert contracts.faults("b", event({})) == ['/: "n" is a required property']
    assert contracts.faults("b", event({"n": 1})) == []
    assert contracts.faults("b", event({}, "u")) == []
    assert contracts.faults("other", event({})) == []


@pytest.mark.parametrize(("since_ms", "stored_ms", "counts"), [(500, 499, False), (500, 500, True), (None, 300, True)])
def test_a_contract_does_not_count_for_what_was_stored_before_it(
    since_ms: int | None, stored_ms: int, counts: bool
) -> None:
    assert bool(book(since_ms=since_ms).faults("b", event({}), stored_ms)) == counts


@pytest.mark.parametrize("violations", ["reject", "flag", "off"])
def test_the_bus_says_what_is_done(violations: str) -> None:
    contracts = book(violations=violations)
    assert (contracts.violations("b"), contracts.violations("nowhere")) == (violations, "off")


def test_a_flag_is_an_attribute_of_ascii() -> None:
    one = event({})
    flag(one, ["\u00e4 is wrong", "b"])
    assert one.attributes["schemaerror"] == "? is wrong; b"
