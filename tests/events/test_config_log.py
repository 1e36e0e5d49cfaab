"""The configuration in the log, through the HTTP face."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from events.facts import TOPIC
from penstock import Message
from penstock.blocking import Admin, Producer
from penstock.errors import ReservedName
from tests.events.bridge import Bridge
from tests.events.sink import Sink
from tests.patience import PATIENCE_S

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


def test_rules_outlive_the_messages_that_retention_removes(tmp_path: Path, sink: Callable[..., Sink]) -> None:
    api, file = sink(), tmp_path / "penstock.toml"
    file.write_text(
        "[broker]\nretention_bytes = 65536\nsegment_bytes = 65536\n[events]\nprivate_targets = ['127.0.0.1/32']\n"
    )
    bridge = Bridge.at(tmp_path / "data", file)
    try:
        with (
            Admin(bridge.addresses.namesrv) as admin,
            Producer(servers=bridge.addresses.namesrv, timeout_s=PATIENCE_S) as producer,
        ):
            place = bridge.rule("default", api.url)
            bridge.done("PUT", "/v1/buses/default/targets/gone", {"kind": "topic", "topic": "x"})
            bridge.done("DELETE", "/v1/buses/default/targets/gone")
            revision = bridge.done("GET", place)["revision"]
            [found] = admin.topic(TOPIC)
            while found.bounds[0].min < found.bounds[0].end:
                producer.send_many([Message("filler", bytes(32_768)) for _ in range(8)])
                [found] = admin.topic(TOPIC)
    finally:
        bridge.stop()
    bridge = Bridge.at(tmp_path / "data", file)
    try:
        assert bridge.done("GET", place)["revision"] == revision
        assert [one["name"] for one in bridge.done("GET", "/v1/buses/default/targets")] == ["t"]
        bridge.done("PUT", place, {"target": "t"}, if_match=f'"{revision}"')
        bridge.send("default", {"n": 1})
        assert api.wait(1)[0].body == b'{"n":1}'
    finally:
        bridge.stop()


def test_no_program_and_no_rule_writes_the_configuration(bridge: Bridge) -> None:
    with Producer(servers=bridge.addresses.namesrv, timeout_s=PATIENCE_S) as producer:
        for message in (
            Message("$events", b"x"),
            Message(TOPIC, b"x"),
            Message(mqtt_topic="$events/bus/x/", body=b"{}"),
        ):
            with pytest.raises(ReservedName):
                producer.send(message)
    place = f"/v1/buses/{bridge.bus()}"
    for topic in ("$events", TOPIC, "$SYS", "%DLQ%x"):
        assert bridge.call("PUT", f"{place}/targets/t", {"kind": "topic", "topic": topic}).status == 400
    for topic in ("$events", TOPIC):
        assert bridge.call("PUT", f"{place}/sources/s", {"topic": topic}).status == 400
    for name in ("$events/rule/b/r", "$SYS/x"):
        assert bridge.call("PUT", f"{place}/targets/t", {"kind": "device", "mqtt_topic": name}).status == 400
