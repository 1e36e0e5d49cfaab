from __future__ import annotations

import pytest

from events.facts import Fact, Facts
from events.problems import Problem
from events.rules import assignment_of, revisions_of
from tests.events.bridge import Bridge
from tests.events.stored import stored

TARGET = {"kind": "topic", "topic": "x"}


def facts_of(**given: object) -> tuple[Facts, Fact]:
    facts = Facts()
    for offset, (key, spec) in enumerate(given.items(), start=1):
        facts.fold(stored(offset, key.replace("_", "/"), spec, 1_000 + offset))
    rule = facts.get("rule", "b", "r")
    assert rule is not None
    return facts, rule


def test_a_rule_reads_its_bus_and_the_topics_of_its_sources_from_its_creation_on() -> None:
    facts, rule = facts_of(source_b_s={"topic": "plant"}, target_b_t=TARGET, rule_b_r={"target": "t"})
    assignment = assignment_of(facts, rule)
    assert assignment is not None
    assert (assignment.topics, assignment.created_ms) == (("b", "plant"), 1_003)


def test_a_change_of_target_or_source_makes_it_another_runner() -> None:
    facts, rule = facts_of(target_b_t=TARGET, rule_b_r={"target": "t"})
    before = revisions_of(facts, rule)
    facts.fold(stored(7, "target/c/t", TARGET, 0))
    assert revisions_of(facts, rule) == before
    facts.fold(stored(8, "source/b/s", {"topic": "plant"}, 0))
    assert revisions_of(facts, rule) != before


def test_a_rule_without_its_target_says_so_and_a_disabled_one_does_nothing() -> None:
    with pytest.raises(Problem, match="no target"):
        assignment_of(*facts_of(rule_b_r={"target": "t"}))
    assert assignment_of(*facts_of(rule_b_r={"target": "t", "enabled": False})) is None


@pytest.mark.endtoend
def test_a_disabled_rule_goes_on_where_it_was(bridge: Bridge) -> None:
    bus = bridge.bus()
    bridge.done("PUT", f"/v1/buses/{bus}/targets/t", {"kind": "topic", "topic": "forwarded"})
    place = f"/v1/buses/{bus}/rules/r"
    bridge.done("PUT", place, {"target": "t"})
    bridge.send(bus, 1)
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)
    bridge.done("PUT", place, {"target": "t", "enabled": False})
    bridge.until(place, lambda value: value["here"]["trouble"] == "disabled")
    bridge.send(bus, 2)
    bridge.done("PUT", place, {"target": "t"})
    bridge.until(place, lambda value: value["here"]["delivered"] == 2)
