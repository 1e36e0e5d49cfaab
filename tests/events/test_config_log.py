"""The configuration in the log, through the HTTP face."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from events.facts import TOPIC
from penstock.blocking import Admin
from tests.events.bridge import Bridge
from tests.node.running import RunningSystem

pytestmark = pytest.mark.endtoend


def test_a_writer_that_knows_an_old_revision_changes_nothing(bridge: Bridge) -> None:
    place = f"/v1/buses/{bridge.bus()}/targets/t"
    made = bridge.call("PUT", place, {"kind": "topic", "topic": "a"}, if_none_match="*")
    assert made.status == 201
    changed = bridge.call("PUT", place, {"kind": "topic", "topic": "b"}, if_match=made.headers["etag"])
    assert changed.status == 200
    for condition in ({"if_match": made.headers["etag"]}, {"if_none_match": "*"}):
        refused = bridge.call("PUT", place, {"kind": "topic", "topic": "c"}, **condition)
        assert (refused.status, refused.value["revision"]) == (412, changed.value["revision"])
    assert bridge.call("DELETE", place, if_match=made.headers["etag"]).status == 412
    assert bridge.done("GET", place)["spec"]["topic"] == "b"


def test_of_many_writers_at_once_one_stands(bridge: Bridge) -> None:
    place = f"/v1/buses/{bridge.bus()}/targets/t"
    with ThreadPoolExecutor(8) as pool:
        topics = [f"t{number}" for number in range(8)]
        answers = list(
            pool.map(lambda one: bridge.call("PUT", place, {"kind": "topic", "topic": one}, if_none_match="*"), topics)
        )
    assert sorted(one.status for one in answers) == [201, *[412] * 7]
    [winner] = [one.value["spec"] for one in answers if one.status == 201]
    assert bridge.done("GET", place)["spec"] == winner


def test_a_bridge_starts_where_all_facts_have_left_the_log(tmp_path: Path) -> None:
    for _ in range(2):
        system = RunningSystem(tmp_path / "data", events_port=0, console_port=-1)
        with Admin(system.addresses.namesrv) as admin:
            admin.purge_topic(TOPIC)
            [found] = admin.topic(TOPIC)
        system.stop()
        assert found.bounds[0].min == found.bounds[0].end > 0
