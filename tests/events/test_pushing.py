from __future__ import annotations

from typing import Any

import orjson
import pytest

from events.cloudevents import Event, from_document, from_http, from_properties
from events.pushing import message_of, request_of
from events.specs import Http, Target
from events.transform import Transform

EVENT = from_document({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "d7", "data": {"n": 1}})


def to(**more: Any) -> Http:
    made = Target.of({"kind": "http", "url": "http://x/"} | more).to
    assert isinstance(made, Http)
    return made


@pytest.mark.parametrize("more", [{}, {"mode": "structured"}, {"batch": 2}])
def test_a_complete_event_goes_in_the_mode_of_its_target(more: dict[str, Any]) -> None:
    made = [(EVENT, Transform().apply(EVENT))] * (2 if "batch" in more else 1)
    headers, body = request_of(to(**more), made)
    assert from_http(headers.items(), body) == [EVENT] * len(made)


def test_a_payload_goes_as_it_is_and_payloads_as_an_array() -> None:
    made = (EVENT, Transform({"kind": "jsonpath", "path": "$.data.n"}).apply(EVENT))
    assert request_of(to(), [made]) == ({"content-type": "application/json"}, b"1")
    assert request_of(to(batch=9), [made, made])[1] == b"[1,1]"


@pytest.mark.parametrize(("more", "key"), [({}, "d7"), ({"partitionkey": "p"}, "p")])
def test_a_stored_event_is_found_by_its_key_and_chosen_by_its_type(more: dict[str, str], key: str) -> None:
    event = Event(EVENT.attributes | more, EVENT.data)
    message = message_of("bus", event)
    assert (message.topic, message.key, message.tag) == ("bus", key, "t")
    assert from_properties(message.properties, message.body) == event
    assert orjson.loads(message.body) == {"n": 1}
