from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from events.mapping import Reading
from events.resting import AWAKE_MAX, RuleRest
from events.scout import RestingRule, Scout
from penstock import Reader
from tests.events.bridge import Bridge
from tests.events.sink import Sink


def no_reader(topic: str) -> Reader:
    raise AssertionError(topic)


async def test_a_rule_runs_in_its_turn_or_for_an_event() -> None:
    scout, turns = Scout([], Reading([]), no_reader), trio.CapacityLimiter(1)
    sleepers = [RestingRule(None) for _ in range(3)]
    first, second, third = [RuleRest(one, scout, turns) for one in sleepers]
    await first.turn()
    assert not first.may_begin()  # no other waits
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.turn)
        await trio.testing.wait_all_tasks_blocked()
        assert first.may_begin()
        sleepers[2].called.set()
        await third.turn()
        assert third.may_begin()  # it has no turn
        first.give_up_turn()
    assert not second.may_begin()
    third.give_up_turn()  # it has none to give
    assert turns.borrowed_tokens == 1


@pytest.mark.endtoend
def test_of_many_rules_most_rest_and_each_gets_its_events(bridge: Bridge, sink: Callable[..., Sink]) -> None:
    bus, api, count = bridge.bus(), sink(), AWAKE_MAX + 8
    place = f"/v1/buses/{bus}/rules"
    bridge.done("PUT", f"/v1/buses/{bus}/targets/t", {"kind": "http", "url": api.url})
    for number in range(count):
        bridge.done("PUT", f"{place}/r{number}", {"target": "t", "pattern": {"type": [f"t{number}"]}})
    for expected in (1, 2):
        bridge.until(place, lambda rules: sum([one["here"]["state"] == "rests" for one in rules]) >= 8)
        for number in range(count):
            bridge.send(bus, number, type=f"t{number}")
        bridge.until(place, lambda rules, n=expected: all([one["here"].get("delivered") == n for one in rules]))
    assert len(api.got) == 2 * count


@pytest.mark.endtoend
def test_a_rule_that_rests_delivers_a_dead_letter_that_is_sent_again(bridge: Bridge, sink: Callable[..., Sink]) -> None:
    bus, api = bridge.bus(), sink(400, 200)
    place = bridge.rule(bus, api.url, pattern={"type": ["wanted"]})
    for number in range(AWAKE_MAX + 1):
        bridge.done("PUT", f"/v1/buses/{bus}/rules/other{number}", {"target": "t", "pattern": {"type": ["other"]}})
    bridge.send(bus, 1, type="wanted")
    bridge.until(place, lambda rule: rule["here"]["dead"] == 1)
    bridge.until(f"/v1/buses/{bus}/rules", lambda rules: any([one["here"]["state"] == "rests" for one in rules]))
    assert bridge.done("POST", place + "/redrive")["sent"] == 1
    bridge.until(place, lambda rule: rule["here"]["delivered"] == 1)
