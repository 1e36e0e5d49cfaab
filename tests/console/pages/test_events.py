from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import Site, cells
from tests.console.test_visits import TwoUsers
from tests.events.bridge import Bridge
from tests.events.sink import Sink

pytestmark = pytest.mark.endtoend
STRANGE = "<i>x</i>"


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    bridge = Bridge.new(tmp_path)
    yield bridge
    bridge.stop()


@pytest.fixture
def api() -> Iterator[Sink]:
    sink = Sink(400)
    yield sink
    sink.end()


async def test_a_bus_is_shown_with_its_rules_targets_types_and_dead_letters(bridge: Bridge, api: Sink) -> None:
    place = bridge.rule("default", api.url, pattern={"type": [STRANGE, "reading"]})
    schema = {"schema": {"type": "object"}}
    bridge.done("PUT", "/v1/buses/default/schemas/reading", schema)
    bridge.done("PUT", "/v1/buses/default/sources/s", {"topic": "plant"})
    bridge.send("default", {"n": 1}, type="reading")
    bridge.until(place, lambda rule: rule["here"]["dead"] == 1)
    bridge.until("/v1/types", lambda rows: bool(rows[0]["sample"]))
    async with Site(bridge.addresses.namesrv).open() as browser:
        assert cells(await browser.get("/events"))[1:] == [["default", "1", "messages"]]
        page = await browser.get("/events/bus?name=default")
        rows = {row[0]: row[1:] for row in cells(page)}
        assert rows["r"][:4] == ["t", '{"type": ["x", "reading"]}', "group", "1"]
        assert rows["t"][0].startswith('{"kind": "http"')
        assert rows["s"][0] == '{"topic": "plant"}'
        assert '"n": 1' in page
        assert STRANGE in page
        assert "HTTP 400" in await browser.get("/letters/of?group=event/default/r")
        assert "event/default/r" in await browser.get("/group?name=event/default/r")
        assert "names no bus" in await browser.get("/events/bus?name=%23", 400)


@pytest.mark.parametrize(("user", "status"), [("carl", 403), ("vera", 200)])
async def test_rules_are_for_users_who_may_view(site: Site, user: str, status: int) -> None:
    async with site.open(TwoUsers()) as browser:
        await browser.get("/events", 303)
        await browser.post("/login", user=user, password=user, status=status)
        await browser.get("/events", status)
        await browser.get("/events/bus?name=default", status)
