from __future__ import annotations

from typing import Any

import pytest

from events.cloudevents import STRUCTURED
from events.face import revision_of
from events.facts import ANY, NONE
from events.problems import Problem
from tests.events.bridge import Bridge


def test_a_request_names_the_revision_that_it_replaces() -> None:
    given = [{}, {"if-match": "*"}, {"if-match": '"7"'}, {"if-match": 'W/"7"'}, {"if-none-match": "*"}]
    assert [revision_of(headers) for headers in given] == [ANY, ANY, 7, 7, NONE]
    for wrong in ("x", '"-1"', '"9999999999999999"'):
        with pytest.raises(Problem):
            revision_of({"if-match": wrong})


@pytest.mark.endtoend
@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", None, {}, 404),
        ("PATCH", "/v1/buses", b"", {}, 405),
        ("PUT", "/v1/buses/a.b", b"{}", {}, 400),
        ("PUT", "/v1/buses/x", b"{", {}, 400),
        ("PUT", "/v1/buses/x", b"[]", {}, 400),
        ("PUT", "/v1/buses/x", b"\xff", {}, 400),
        ("PUT", "/v1/buses/default/sources/x", b"[]", {}, 400),
        ("PUT", "/v1/buses/default/rules/x", b"{}", {"if_match": "x"}, 400),
        ("GET", "/v1/buses/default/rules/x/dead-letters?count=x", None, {}, 400),
        ("POST", "/v1/buses/default/rules/x/redrive?again=1", b"", {}, 400),
        ("POST", "/v1/buses/default/rules/x/redrive", b"", {}, 404),
        ("POST", "/v1/buses/default/events", b"{}", {"content_type": "text/plain"}, 415),
        ("POST", "/v1/buses/default/events", b"x" * (8 * 1024 * 1024 + 1), {"content_type": STRUCTURED}, 413),
        ("GET", "/v1/buses", None, {"host": "evil.example"}, 421),
        ("GET", "/v1/buses", None, {"origin": "http://evil.example"}, 403),
    ],
)
def test_what_is_wrong_with_a_request_is_a_problem_document(
    bridge: Bridge, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    answer = bridge.call(method, path, body=body, **headers)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.value["status"] == status


@pytest.mark.endtoend
def test_lists_have_what_was_written(bridge: Bridge) -> None:
    bus = bridge.bus()
    place = bridge.rule(bus, "http://127.0.0.1:1/")
    assert bus in [one["name"] for one in bridge.done("GET", "/v1/buses")]
    listed: list[Any] = bridge.done("GET", place.removesuffix("/r"))
    assert [(one["name"], one["group"]) for one in listed] == [("r", f"event/{bus}/r")]
    assert [one["name"] for one in bridge.done("GET", f"/v1/buses/{bus}/targets")] == ["t"]
