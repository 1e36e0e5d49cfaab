from __future__ import annotations

from events.catalogue import TYPES_MAX, Catalogue
from events.cloudevents import Event, from_document
from events.facts import Facts
from tests.events.stored import stored


def event(of_type: str, source: str = "/s") -> Event:
    return from_document({"specversion": "1.0", "id": "1", "source": source, "type": of_type, "data": 1})


def test_a_new_type_is_noted_once_with_a_sample() -> None:
    catalogue = Catalogue(Facts())
    for source in ("/a", "/b"):
        catalogue.saw("bus", event("t", source))
    [(bus, of_type, spec)] = catalogue.take_new()
    assert (bus, of_type, spec["sample"]["source"]) == ("bus", "t", "/a")
    assert catalogue.take_new() == []
    [row] = catalogue.rows("bus")
    assert (row["seen"], row["producers"]) == (2, ["/a", "/b"])


def test_a_type_that_a_rule_has_read_is_in_the_catalogue_and_not_counted() -> None:
    catalogue = Catalogue(Facts())
    catalogue.noticed("bus", event("t", "/device"))
    [(_, of_type, spec)] = catalogue.take_new()
    assert (of_type, spec["sample"]["source"]) == ("t", "/device")
    [row] = catalogue.rows("bus")
    assert (row["seen"], row["producers"]) == (0, ["/device"])


def test_the_catalogue_names_schema_and_rules_also_of_types_that_others_saw() -> None:
    facts = Facts()
    given = {
        "type/b/t": {"sample": {"source": "/s"}},
        "schema/b/t": {"versions": [{"version": 1, "schema": {"required": ["n"]}}]},
        "rule/b/all": {"target": "x"},
        "rule/b/other": {"target": "x", "pattern": {"type": ["u"]}},
    }
    for offset, (key, spec) in enumerate(given.items(), start=1):
        facts.fold(stored(offset, key, spec, 0))
    [row] = Catalogue(facts).rows()
    assert (row["type"], row["schema"], row["rules"], row["producers"]) == ("t", True, ["all"], ["/s"])
    assert row["contract"] == {"required": ["n"]}


def test_the_catalogue_has_a_limit() -> None:
    catalogue = Catalogue(Facts())
    for number in range(TYPES_MAX + 5):
        catalogue.saw("b", event(f"t{number}"))
    assert len(catalogue.rows()) == TYPES_MAX
