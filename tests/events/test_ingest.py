from __future__ import annotations

import pytest

from penstock.blocking import Reader
from tests.events.bridge import BATCH, Bridge

pytestmark = pytest.mark.endtoend
SCHEMA = {"schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "number"}}}}
WRONG = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": "x"}}


def test_an_event_that_breaks_its_contract_is_refused_with_its_whole_batch(bridge: Bridge) -> None:
    bus = bridge.bus()
    bridge.done("PUT", f"/v1/buses/{bus}/schemas/t", SCHEMA)
    right = WRONG | {"data": {"n": 1}}
    answer = bridge.call("POST", f"/v1/buses/{bus}/events", [right, WRONG], content_type=BATCH)
    assert (answer.status, answer.value["index"]) == (422, 1)
    assert answer.value["faults"] == ['/n: "x" is not of type "number"']
    with Reader(bus, servers=bridge.addresses.namesrv, until_end=True) as reader:
        assert list(reader.messages()) == []


@pytest.mark.parametrize(("violations", "flags"), [("flag", ['/n: "x" is not of type "number"']), ("off", [None])])
def test_a_bus_may_flag_it_or_let_it_pass(bridge: Bridge, violations: str, flags: list[str | None]) -> None:
    bus = bridge.bus(violations=violations)
    bridge.done("PUT", f"/v1/buses/{bus}/schemas/t", SCHEMA)
    bridge.done("POST", f"/v1/buses/{bus}/events", [WRONG], content_type=BATCH)
    with Reader(bus, servers=bridge.addresses.namesrv, until_end=True) as reader:
        assert [message.properties.get("CE_schemaerror") for message in reader.messages()] == flags


def test_put_events_works_as_rocketmq_event_bridges_does(bridge: Bridge) -> None:
    bus = bridge.bus()
    headers = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/s", "ce_type": "t", "ce_eventbusname": bus}
    answer = bridge.call("POST", "/putEvents", body=b"{}", content_type="application/json", **headers)
    assert answer.value == {"FailedEntryCount": 0, "EntryList": [{"EventId": "1"}]}
    row = bridge.until(f"/v1/buses/{bus}/types", lambda rows: rows and rows[0]["sample"])[0]
    assert (row["type"], row["seen"], row["producers"]) == ("t", 1, ["/s"])


def test_a_bus_that_is_not_there_is_told(bridge: Bridge) -> None:
    answer = bridge.call("POST", "/v1/buses/nowhere/events", [WRONG], content_type=BATCH)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
