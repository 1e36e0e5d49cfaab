from __future__ import annotations

import pytest

from events.cloudevents import Event, to_properties
from events.mapping import Reading
from events.pattern import Pattern
from events.scout import RestingRule, Scout
from penstock import MessageQueue, Reader, ReceivedMessage
from tests.events.stored import received

QUEUE = MessageQueue("a", "b", 0)


def no_reader(topic: str) -> Reader:
    raise AssertionError(topic)


def scout_with(*types: str) -> tuple[Scout, list[RestingRule]]:
    scout = Scout(["b"], Reading([]), no_reader)
    sleepers = [RestingRule(Pattern({"type": [one]})) for one in types]
    for name, sleeper in zip(types, sleepers, strict=True):
        scout.follow(name, sleeper)
    return scout, sleepers


def message(offset: int, of_type: str) -> ReceivedMessage:
    attributes = {"specversion": "1.0", "id": str(offset), "source": "/s", "type": of_type}
    return received(QUEUE, offset, to_properties(Event(attributes)))


def test_an_event_wakes_the_rules_that_want_it_and_no_other() -> None:
    scout, (first, second) = scout_with("x", "y")
    for sleeper in (first, second):
        sleeper.rest(scout.seen)
    scout.look([message(4, "z"), message(5, "x")])
    assert (first.called.is_set(), second.called.is_set()) == (True, False)
    assert not second.doubted.is_set()
    scout.forget("x")
    first.rest(scout.seen)
    scout.look([message(6, "x")])
    assert not first.called.is_set()


def test_a_rule_need_not_look_where_nothing_was_for_it() -> None:
    scout, (one,) = scout_with("x")
    one.rest(scout.seen)
    scout.look([message(4, "z")])
    assert one.skips(scout.seen) == {}  # it is not known what was before
    one.rest(scout.seen)
    scout.look([message(5, "z"), message(6, "z")])
    assert one.skips(scout.seen) == {QUEUE: (5, 7)}
    scout.look([message(7, "x"), message(8, "z"), message(9, "x")])
    assert one.skips(scout.seen) == {QUEUE: (5, 7)}
    one.rest(scout.seen)
    assert one.skips(scout.seen) == {}


def test_a_rule_looks_itself_where_events_passed_by_unseen() -> None:
    scout, (one,) = scout_with("x")
    scout.look([message(4, "z")])
    one.rest(scout.seen)
    scout.look([message(9, "z")])
    assert (one.doubted.is_set(), one.called.is_set(), one.skips(scout.seen)) == (True, False, {})


@pytest.mark.parametrize("pattern", [None, Pattern({"subject": [{"exists": False}]})])
def test_a_rule_that_names_no_type_is_woken_too(pattern: Pattern | None) -> None:
    scout, _ = scout_with("x")
    sleeper = RestingRule(pattern)
    scout.follow("any", sleeper)
    scout.look([message(1, "whatever")])
    assert sleeper.called.is_set()
