from __future__ import annotations

import json
from typing import Any

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from events import cloudevents
from events.cloudevents import (
    BATCH,
    STRUCTURED,
    Event,
    from_document,
    from_http,
    from_properties,
    to_document,
    to_properties,
)
from events.problems import Problem

USUAL = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
CE = [(f"ce-{name}", value) for name, value in USUAL.items()]


def structured(document: Any, kind: str = STRUCTURED) -> list[Event]:
    return from_http([("content-type", kind)], json.dumps(document).encode())


def test_binary_mode_has_attributes_in_headers_and_data_in_the_body() -> None:
    headers = [*CE, ("ce-subject", "d%C3%A9%20%25"), ("content-type", "text/plain; charset=utf-8"), ("host", "x")]
    [event] = from_http(headers, b"hello")
    assert event.attributes == USUAL | {"subject": "dé %", "datacontenttype": "text/plain; charset=utf-8"}
    assert event.data == b"hello"


def test_an_event_without_body_and_type_has_no_data() -> None:
    assert from_http(CE, b"")[0].data is None


@pytest.mark.parametrize(
    ("more", "data", "kind"),
    [
        ({}, None, None),
        ({"data": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"data": None}, b"null", "application/json"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text", "text/plain"),
        ({"data": "text", "datacontenttype": "application/x+json"}, b'"text"', "application/x+json"),
        ({"data_base64": "AAE="}, b"\0\1", None),
        ({"subject": None}, None, None),
    ],
)
def test_structured_mode_has_the_data_as_json_text_or_base64(more: Any, data: Any, kind: Any) -> None:
    [event] = structured(USUAL | more)
    assert (event.data, event.attributes.get("datacontenttype")) == (data, kind)


def test_a_batch_has_any_number_of_events() -> None:
    assert structured([], BATCH) == []
    assert [one.attributes["id"] for one in structured([USUAL, USUAL | {"id": "2"}], BATCH)] == ["1", "2"]


def test_integers_and_booleans_become_their_text() -> None:
    assert from_document(USUAL | {"n": 5, "b": False}).attributes == USUAL | {"n": "5", "b": "false"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"specversion": "0.3"},
        {"id": ""},
        {"id": None},
        {"source": "a b"},
        {"type": "a\nb"},
        {"Upper": "x"},
        {"n": 1.5},
        {"n": 2**31},
        {"n": {}},
        {"a" * 65: "x"},
        {"x": "y" * 4_097},
        {"time": "yesterday"},
        {"time": "2026-13-01T00:00:00Z"},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "!"},
        {"data_base64": 1},
        {"data": 1, "datacontenttype": "text/plain"},
        {f"a{number}": "x" for number in range(61)},
    ],
)
def test_an_event_that_breaks_a_rule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        structured(USUAL | wrong)
    assert (caught.value.status, caught.value.code) == (400, "invalid-event")


@pytest.mark.parametrize("time", ["2026-11-28T20:00:00Z", "2026-11-28t20:00:00.123456789+01:00"])
def test_a_timestamp_of_rfc_3339_is_taken(time: str) -> None:
    assert from_document(USUAL | {"time": time}).attributes["time"] == time


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ([], b"{}", 415),
        ([("content-type", "application/json")], b"{}", 415),
        ([("content-type", "application/cloudevents+avro")], b"", 415),
        ([("content-type", STRUCTURED)], b"{", 400),
        ([("content-type", STRUCTURED)], b"[" * 100_000, 400),
        ([("content-type", STRUCTURED)], b'{"data": ' + b"[" * 200 + b"]" * 200 + b"}", 400),
        ([*CE, ("content-type", "///;;")], b"x", 400),
        ([*CE, ("content-type", "text/x\xe4")], b"x", 400),
        ([*CE, *[(f"ce-x{n}", "y" * 4_000) for n in range(40)]], b"x", 400),
        ([("content-type", STRUCTURED)], b'{"id": "\\ud800"}', 400),
        ([("content-type", BATCH)], b"{}", 400),
        ([("content-type", BATCH)], b"[" + b"1," * 10_001 + b"1]", 413),
        ([*CE, ("ce-id", "2")], b"", 400),
        ([*CE, ("ce-subject", "%ff")], b"", 400),
        ([*CE, ("ce-datacontenttype", "a/b")], b"", 400),
    ],
)
def test_a_request_that_has_no_event_is_a_problem(headers: Any, body: bytes, status: int) -> None:
    with pytest.raises(Problem) as caught:
        from_http(headers, body)
    assert caught.value.status == status


def test_a_wrong_event_of_a_batch_is_named_by_its_place() -> None:
    with pytest.raises(Problem) as caught:
        structured([USUAL, {}], BATCH)
    assert caught.value.more == {"index": 1}


texts = st.text(st.characters(exclude_categories=["C"], exclude_characters="\ufdd0\ufffe"), min_size=1, max_size=30)
events = st.builds(
    lambda id, subject, kind, data: Event(
        USUAL | {"id": id, "subject": subject} | ({"datacontenttype": kind} if data is not None else {}), data
    ),
    texts,
    texts,
    st.sampled_from(["application/json", "text/plain", "application/octet-stream"]),
    st.none() | st.binary(max_size=30) | st.just(b'{"a":1}'),
)


@given(events)
def test_a_stored_event_is_read_as_it_was(event: Event) -> None:
    assert from_properties(to_properties(event), event.data or b"") == event


@given(events)
def test_our_json_is_read_as_it_was(event: Event) -> None:
    read = from_document(json.loads(cloudevents.to_json(event)))
    assert read.attributes == event.attributes
    assert read.value == event.value or read.data == event.data


@given(
    st.lists(st.tuples(st.sampled_from(["content-type", "ce-id", "ce-specversion", "ce-x"]), st.text(max_size=9))),
    st.binary(),
)
def test_any_request_gives_events_or_a_problem(headers: list[tuple[str, str]], body: bytes) -> None:
    refused: list[int] = []
    for kind in ([], [("content-type", STRUCTURED)], [("content-type", BATCH)]):
        try:
            from_http([*headers, *kind], body)
        except Problem as problem:
            refused.append(problem.status)
    assert set(refused) <= {400, 413, 415}


def test_the_official_sdk_and_we_read_each_others_requests() -> None:
    theirs = CloudEvent(USUAL | {"subject": "dé 5%", "datacontenttype": "application/json"}, {"n": [1, "x"]})
    for message in (sdk.to_binary_event(theirs), sdk.to_structured_event(theirs)):
        body = message.body if isinstance(message.body, bytes) else message.body.encode()
        [event] = from_http([(name.lower(), value) for name, value in message.headers.items()], body)
        assert (event.attributes["subject"], event.value) == ("dé 5%", {"n": [1, "x"]})
        again = sdk.from_http_event(sdk.HTTPMessage(cloudevents.to_headers(event), event.data or b""))
        assert (again.get_subject(), again.get_data()) == ("dé 5%", {"n": [1, "x"]})


def test_data_with_too_many_levels_is_text_and_is_written_as_it_came() -> None:
    deep = b"[" * 1_000 + b"]" * 1_000
    [event] = from_http([*CE, ("content-type", "application/json")], deep)
    assert event.value == deep.decode()
    assert from_document(to_document(event)).data == deep
