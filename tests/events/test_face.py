from __future__ import annotations

from typing import Any

import pytest
import trio

from events.callers import Callers
from events.catalogue import Catalogue
from events.cloudevents import STRUCTURED
from events.config_log import ConfigLog
from events.contract_book import ContractBook
from events.desk import Desk
from events.face import BODY_S, Face, revision_of
from events.facts import ANY, NONE
from events.ingest import Ingest
from events.problems import Problem
from events.resting import Resting
from events.rules import Rules
from events.runner import Runner
from events.settings import EventsSettings
from penstock import Admin, Producer, Reader
from penstock.service.access_files import AccessFiles
from penstock.service.http_logins import HttpLogins
from penstock.world import real_world
from tests.events.bridge import Bridge

CE = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/s", "ce_type": "t"}


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
        ("POST", "/v1/buses/default/events", b"x" * (5 * 1024 * 1024), {"content_type": "text/plain", **CE}, 413),
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


async def test_a_body_that_drips_is_broken_off() -> None:
    world, admin = real_world(), Admin()
    config = ConfigLog(["127.0.0.1:1"], None, admin, world)
    catalogue = Catalogue(config.facts)

    def make(*_: object) -> Runner:
        raise AssertionError("there is no rule")

    rules = Rules(config, admin, make, Resting(Reader))
    desk = Desk(config, admin, rules, catalogue, world.clock)
    logins = HttpLogins(AccessFiles(EventsSettings(), world, None), Problem, takes_clear=False)
    face = Face(desk, Ingest(config, Producer(), catalogue, ContractBook(config.facts)), Callers(), logins, 1_000_000)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await trio.sleep(1)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    head = {"type": "http", "method": "POST", "path": "/v1/test", "query_string": b"", "http_version": "1.1"}
    scope = head | {"headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2)}
    began = trio.current_time()
    await face.app(scope, receive, send)
    assert sent[0]["status"] == 408
    assert trio.current_time() - began == pytest.approx(BODY_S, abs=1)
