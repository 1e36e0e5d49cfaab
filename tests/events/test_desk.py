from __future__ import annotations

import json
from typing import Any

import pytest

from events.cloudevents import from_document
from events.desk import verdict
from tests.events.bridge import Bridge

EVENT = from_document({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 3}})
HTTP = {"kind": "http", "url": "http://x/", "method": "PUT"}


def test_a_verdict_shows_the_request_that_would_be_made() -> None:
    spec = {"target": "x", "transform": {"kind": "jsonpath", "path": "$.data.n"}}
    made = verdict(spec, HTTP, EVENT, {})
    assert (made["matches"], made["method"], made["body"]) == (True, "PUT", "3")


def test_a_verdict_says_why_an_event_does_not_match_or_cannot_be_transformed() -> None:
    no = verdict({"target": "x", "pattern": {"data": {"n": [4]}}}, HTTP, EVENT, {})
    assert (no["matches"], no["explanation"][0]["found"]) == (False, 3)
    strict = {"kind": "jsonpath", "path": "$.data.gone", "strict": True}
    assert "gone" in verdict({"target": "x", "transform": strict}, HTTP, EVENT, {})["failure"]


@pytest.mark.endtoend
def test_a_bus_in_use_and_a_target_in_use_stay(bridge: Bridge) -> None:
    bus = bridge.bus()
    bridge.rule(bus, "http://127.0.0.1:1/")
    for place in (f"/v1/buses/{bus}", f"/v1/buses/{bus}/targets/t"):
        assert bridge.call("DELETE", place).status == 409
    for place in ("/rules/r", "/targets/t", ""):
        assert bridge.call("DELETE", f"/v1/buses/{bus}{place}").status == 204
    assert bridge.call("GET", f"/v1/buses/{bus}").status == 404


@pytest.mark.endtoend
def test_a_contract_has_versions_and_a_new_one_must_take_what_the_old_one_took(bridge: Bridge) -> None:
    place = f"/v1/buses/{bridge.bus()}/schemas/com.example.reading"
    for schema in ({"required": ["n"]}, {"required": []}, {"required": []}):
        bridge.done("PUT", place, {"schema": schema})
    assert [one["version"] for one in bridge.done("GET", place)["spec"]["versions"]] == [1, 2]
    refused = bridge.call("PUT", place, {"schema": {"required": ["n"]}})
    assert (refused.status, refused.value["incompatibilities"]) == (409, ["/: n was not required"])
    bridge.done("PUT", place, {"schema": {"required": ["n"]}, "compatibility": "none"})


@pytest.mark.endtoend
def test_a_rule_is_tried_without_sending_anything(bridge: Bridge) -> None:
    bus = bridge.bus()
    place = bridge.rule(bus, "http://127.0.0.1:1/", pattern={"type": ["t"]})
    headers: dict[str, str] = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/s", "ce_type": "t"}
    answer = bridge.call("POST", f"{place}/test", body=b"", **headers)
    assert (answer.value["matches"], answer.value["url"]) == (True, "http://127.0.0.1:1/")
    given: dict[str, Any] = {"event": json.loads(json.dumps(EVENT.document())), "rule": {"target": "x"}}
    assert bridge.done("POST", "/v1/test", given)["matches"] is True


@pytest.mark.endtoend
def test_a_rule_needs_its_target_and_a_topic_one_source(bridge: Bridge) -> None:
    bus = bridge.bus()
    assert bridge.call("PUT", f"/v1/buses/{bus}/rules/r", {"target": "t"}).status == 409
    bridge.done("PUT", f"/v1/buses/{bus}/sources/a", {"topic": "plant"})
    assert bridge.call("PUT", f"/v1/buses/{bus}/sources/b", {"topic": "plant"}).status == 409
