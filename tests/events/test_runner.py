from __future__ import annotations

from collections.abc import Callable

import pytest

from events.runner import group_of
from penstock.blocking import Admin, Producer
from tests.events.bridge import Bridge
from tests.events.sink import Sink


def test_a_rule_is_a_consumer_group() -> None:
    assert group_of("default", "hook") == "event/default/hook"


@pytest.mark.endtoend
def test_a_reset_of_the_group_delivers_again(bridge: Bridge, sink: Callable[..., Sink]) -> None:
    api, bus = sink(), bridge.bus()
    place = bridge.rule(bus, api.url)
    bridge.send(bus, *range(3))
    api.wait(3)
    bridge.done("PUT", place, {"target": "t", "enabled": False})
    bridge.until(place, lambda value: value["here"]["trouble"] == "disabled")
    with Admin(bridge.addresses.namesrv) as admin:
        moved = admin.reset_group(group_of(bus, "r"), bus, to="earliest")
    assert sum(row.before - max(row.after, 0) for row in moved if row.before > 0) == 3
    bridge.done("PUT", place, {"target": "t"})
    api.wait(6)


@pytest.mark.endtoend
@pytest.mark.parametrize("violations", ["reject", "flag", "off"])
def test_what_a_program_stores_itself_is_held_against_its_contract_as_the_bus_says(
    bridge: Bridge, sink: Callable[..., Sink], violations: str
) -> None:
    api, bus = sink(), bridge.bus(violations=violations)
    place = bridge.rule(bus, api.url)
    bridge.done("PUT", f"/v1/buses/{bus}/schemas/t", {"schema": {"type": "object", "required": ["n"]}})
    attributes = {"CE_specversion": "1.0", "CE_source": "/native", "CE_type": "t"}
    with Producer(servers=bridge.addresses.namesrv) as producer:
        for id, body in (("wrong", b"{}"), ("right", b'{"n": 1}')):
            producer.send(bus, body, properties=attributes | {"CE_id": id, "CE_contenttype": "application/json"})
    got = {one.headers["ce-id"]: one.headers for one in api.wait(1 if violations == "reject" else 2)}
    told = '/: "n" is a required property'
    if violations == "reject":
        [letter] = bridge.until(f"{place}/dead-letters", len)
        assert letter["reason"] == f"the event breaks the contract of its type: {told}"
        assert got.keys() == {"right"}
    else:
        assert got.keys() == {"right", "wrong"}
        flagged = {id for id, headers in got.items() if "ce-schemaerror" in headers}
        assert flagged == ({"wrong"} if violations == "flag" else set())
    [row] = bridge.until(f"/v1/buses/{bus}/types", lambda rows: rows and rows[0]["sample"])
    assert (row["type"], row["producers"], row["seen"]) == ("t", ["/native"], 0)


@pytest.mark.endtoend
def test_a_transform_that_fails_is_a_dead_letter_and_others_go_on(bridge: Bridge, sink: Callable[..., Sink]) -> None:
    api, bus = sink(), bridge.bus()
    strict = {"kind": "jsonpath", "path": "$.data.n", "strict": True}
    place = bridge.rule(bus, api.url, transform=strict)
    bridge.send(bus, {"x": 1}, {"n": 5})
    assert api.wait(1)[0].body == b"5"
    [letter] = bridge.until(f"{place}/dead-letters", len)
    assert letter["reason"] == "the transform failed: the event has nothing at $.data.n"
