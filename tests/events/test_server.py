"""What a whole event bridge does, over HTTP, in a real system."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from events.cloudevents import JSON, STRUCTURED
from penstock.blocking import Producer, Reader
from tests.events.bridge import Bridge
from tests.events.sink import Sink
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend
MakeSink = Callable[..., Sink]
SOON = {"kind": "decay", "first_s": 0.05, "cap_s": 0.05}


def test_an_event_that_a_rule_wants_reaches_its_api_as_the_template_says(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(), bridge.bus()
    template = {"kind": "template", "template": {"celsius": "${n}"}, "variables": {"n": "$.data.n"}}
    pattern = {"type": ["t"], "data": {"n": [{"numeric": [">", 5]}]}}
    bridge.rule(bus, api.url, pattern=pattern, transform=template)
    low, high = bridge.send(bus, {"n": 1}, {"n": 9})
    assert high["queue"].startswith(f"{bus}:")
    [got] = api.wait(1)
    assert (json.loads(got.body), got.path) == ({"celsius": 9}, "/in")
    assert got.headers["idempotency-key"] == f"{high['id']}/r"
    assert low["id"] not in got.headers["idempotency-key"]


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_official_sdk_sends_to_us_and_reads_what_we_send(bridge: Bridge, sink: MakeSink, mode: str) -> None:
    api, bus = sink(), bridge.bus()
    bridge.rule(bus, api.url, target={"mode": mode})
    attributes = {"id": "1", "source": "/sdk", "type": "x", "subject": "dé", "datacontenttype": "application/json"}
    message = sdk.to_structured_event(CloudEvent(attributes, {"n": 1}))
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    headers = {name.lower().replace("-", "_"): value for name, value in message.headers.items()}
    assert bridge.call("POST", f"/v1/buses/{bus}/events", body=body, **headers).status == 202
    [got] = api.wait(1)
    event = sdk.from_http_event(sdk.HTTPMessage(got.headers, got.body))
    assert (event.get_id(), event.get_subject(), event.get_data()) == ("1", "dé", {"n": 1})


@pytest.mark.parametrize("fault", [500, "reset", "garbage", "hang", "drip"])
def test_a_failed_attempt_is_made_again_under_the_same_key(bridge: Bridge, sink: MakeSink, fault: object) -> None:
    api, bus = sink(fault, fault, 200), bridge.bus()
    limit_s = 0.5 if fault in ("hang", "drip") else PATIENCE_S
    place = bridge.rule(bus, api.url, target={"timeout_s": limit_s}, retry=SOON)
    bridge.send(bus, 1)
    here = bridge.until(place, lambda value: value["here"]["delivered"] == 1)["here"]
    assert (here["failed"] >= 2, here["dead"]) == (True, 0), "a starved API may miss the limit again"
    assert len({one.headers["idempotency-key"] for one in api.wait(3)}) == 1


def test_ten_gigabytes_of_answer_are_not_read(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink("huge"), bridge.bus()
    place = bridge.rule(bus, api.url)
    bridge.send(bus, 1)
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)


def test_a_target_that_asks_for_time_gets_it(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink((429, {"retry-after": "1"}), 200), bridge.bus()
    place = bridge.rule(bus, api.url, retry=SOON)
    bridge.send(bus, 1)
    api.wait(2)
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)


def test_what_fails_every_time_is_a_dead_letter_that_a_redrive_delivers(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(503), bridge.bus()
    place = bridge.rule(bus, api.url, retry=SOON | {"attempts": 3})
    [sent] = bridge.send(bus, {"n": 1})
    [letter] = bridge.until(f"{place}/dead-letters", len)
    assert (letter["id"], letter["attempts"], letter["reason"]) == (sent["id"], 3, "HTTP 503, after 3 attempts")
    assert len(api.got) == 3
    api.plan = [200]
    assert bridge.done("POST", f"{place}/redrive") == {"status": "SUCCESS", "sent": 1, "failed": 0, "failures": []}
    assert json.loads(api.wait(4)[3].body) == {"n": 1}
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)
    assert bridge.done("POST", f"{place}/redrive")["sent"] == 0


@pytest.mark.parametrize(("status", "reason"), [(400, "HTTP 400"), (302, "HTTP 302 (redirects are not followed)")])
def test_a_refusal_is_a_dead_letter_at_once(bridge: Bridge, sink: MakeSink, status: int, reason: str) -> None:
    api, bus = sink((status, {"location": "http://127.0.0.1/"})), bridge.bus()
    place = bridge.rule(bus, api.url)
    bridge.send(bus, 1)
    [letter] = bridge.until(f"{place}/dead-letters", len)
    assert (letter["attempts"], letter["reason"], len(api.got)) == (1, reason, 1)


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.2", "[::1]", "[::ffff:10.0.0.1]", "2130706434"])
def test_no_address_is_connected_to_that_the_operator_does_not_list(bridge: Bridge, host: str) -> None:
    bus = bridge.bus()
    place = bridge.rule(bus, f"http://{host}/latest/meta-data")
    bridge.send(bus, 1)
    [letter] = bridge.until(f"{place}/dead-letters", len)
    assert "private_targets does not list" in letter["reason"]


def test_secrets_come_from_files_and_the_body_is_signed(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(), bridge.bus()
    bridge.rule(
        bus, api.url, target={"secret_headers": {"Authorization": "token"}, "hmac": "key", "headers": {"X-A": "b"}}
    )
    bridge.send(bus, {"n": 1})
    [got] = api.wait(1)
    assert (got.headers["authorization"], got.headers["x-a"]) == ("Bearer s3cret", "b")
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    wanted = base64.b64encode(hmac.digest(b"signing", signed, hashlib.sha256)).decode()
    assert got.headers["webhook-signature"] == f"v1,{wanted}"


def test_a_batch_target_gets_many_events_in_few_requests(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(), bridge.bus()
    bridge.rule(bus, api.url, target={"batch": 100})
    sent = bridge.send(bus, *range(500))
    api.wait(lambda got: sum(len(json.loads(one.body)) for one in got) >= 500)
    assert {one["id"] for got in api.got for one in json.loads(got.body)} == {one["id"] for one in sent}
    assert len(api.got) < 250


def test_an_ordered_rule_delivers_a_key_in_order_through_failures(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(200, 500, 200, 500, 500, 200), bridge.bus()
    place = bridge.rule(bus, api.url, ordered=True, retry=SOON)
    bridge.send(bus, *range(10), partitionkey="k")
    bridge.until(place, lambda value: value["here"]["delivered"] == 10)
    bodies = [json.loads(one.body) for one in api.got]
    assert [one for at, one in enumerate(bodies) if at == 0 or one != bodies[at - 1]] == list(range(10))


def test_telemetry_becomes_events_by_a_source_without_code(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(), bridge.bus()
    bridge.done("PUT", f"/v1/buses/{bus}/sources/plant", {"topic": "plant"})
    pattern = {
        "type": ["mqtt.publish"],
        "subject": [{"suffix": "/temperature"}],
        "data": {"c": [{"numeric": [">", 5]}]},
    }
    bridge.rule(bus, api.url, pattern=pattern)
    with Producer(servers=bridge.addresses.namesrv) as producer:
        for celsius in (3, 21):
            body = json.dumps({"c": celsius}).encode()
            producer.send("plant", body, key="d7", mqtt_topic="plant/d7/temperature")
    [got] = api.wait(1)
    assert json.loads(got.body) == {"c": 21}
    assert (got.headers["ce-source"], got.headers["ce-subject"]) == ("/devices/d7", "plant/d7/temperature")


def test_rules_forward_to_topics_and_to_devices(bridge: Bridge) -> None:
    bus, other = bridge.bus(), bridge.bus()
    bridge.done("PUT", f"/v1/buses/{bus}/targets/other", {"kind": "topic", "topic": other})
    device = {"kind": "device", "mqtt_topic": "to/${d}/set", "variables": {"d": "$.subject"}}
    bridge.done("PUT", f"/v1/buses/{bus}/targets/device", device)
    bridge.done("PUT", f"/v1/buses/{bus}/rules/a", {"target": "other"})
    bridge.done(
        "PUT", f"/v1/buses/{bus}/rules/b", {"target": "device", "transform": {"kind": "jsonpath", "path": "$.data"}}
    )
    [sent] = bridge.send(bus, {"n": 1}, subject="d7")
    for name in ("a", "b"):
        bridge.until(f"/v1/buses/{bus}/rules/{name}", lambda value: value["here"]["delivered"] == 1)
    with Reader(other, servers=bridge.addresses.namesrv, until_end=True) as reader:
        [message] = reader.messages()
        assert (message.properties["CE_id"], message.tag, message.key) == (sent["id"], "t", "d7")
    with Reader("to", servers=bridge.addresses.namesrv, until_end=True) as reader:
        [message] = reader.messages()
        assert (message.mqtt_topic, message.body) == ("to/d7/set", b'{"n":1}')


def test_a_rule_takes_part_from_its_creation_on_and_a_changed_one_goes_on(bridge: Bridge, sink: MakeSink) -> None:
    api, bus = sink(), bridge.bus()
    bridge.send(bus, "before")
    place = bridge.rule(bus, api.url)
    bridge.send(bus, "first")
    api.wait(1)
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)
    bridge.done("PUT", place, {"target": "t", "transform": {"kind": "constant", "value": "second"}})
    bridge.send(bus, "x")
    assert [json.loads(one.body) for one in api.wait(2)] == ["first", "second"]
    assert bridge.call("DELETE", place).status == 204
    assert bridge.call("GET", place).status == 404


def test_metrics_count_what_rules_do(bridge: Bridge, sink: MakeSink) -> None:
    from urllib.request import urlopen

    api, bus = sink(), bridge.bus()
    place = bridge.rule(bus, api.url)
    bridge.send(bus, 1)
    bridge.until(place, lambda value: value["here"]["delivered"] == 1)
    with urlopen(f"http://{bridge.addresses.http}/metrics") as page:
        text = page.read().decode()
    assert f'events_delivered_total{{bus="{bus}",rule="r"}} 1' in text


def test_an_event_that_waits_for_its_next_attempt_is_undelivered(bridge: Bridge, sink: MakeSink) -> None:
    bus = bridge.bus()
    place = bridge.rule(bus, sink(500).url, retry={"kind": "backoff", "first_s": 3600, "cap_s": 3600})
    bridge.send(bus, 1)
    bridge.until(place, lambda rule: rule["here"]["failed"] == 1 and rule["here"]["oldest_undelivered_s"] > 0.5)


@contextmanager
def device_at(address: str, filter: str) -> Iterator[tuple[Client, SimpleQueue[MQTTMessage]]]:
    """A device of MQTT 5 that has subscribed, and what it gets."""
    client, got, ready = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5), SimpleQueue[MQTTMessage](), Event()
    client.on_message = lambda _client, _data, message: got.put(message)
    client.on_connect = lambda *_: client.subscribe(filter, 1)
    client.on_subscribe = lambda *_: ready.set()
    host, _, port = address.rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    try:
        assert ready.wait(PATIENCE_S)
        yield client, got
    finally:
        client.disconnect()
        client.loop_stop()


def test_an_event_comes_and_goes_by_the_mqtt_5_binding(bridge: Bridge) -> None:
    bus = bridge.bus()
    bridge.done("PUT", f"/v1/buses/{bus}/sources/in", {"topic": f"in-{bus}"})
    bridge.done("PUT", f"/v1/buses/{bus}/targets/t", {"kind": "device", "mqtt_topic": f"out-{bus}/d7"})
    bridge.done("PUT", f"/v1/buses/{bus}/rules/r", {"target": "t", "pattern": {"type": ["bound"]}})
    usual = {"specversion": "1.0", "source": "/d7", "type": "bound"}
    structured, binary = Properties(PacketTypes.PUBLISH), Properties(PacketTypes.PUBLISH)
    structured.ContentType, binary.ContentType = STRUCTURED, JSON
    binary.UserProperty = [*usual.items(), ("id", "m2")]
    with device_at(bridge.addresses.mqtt, f"out-{bus}/#") as (device, got):
        device.publish(f"in-{bus}/d7", json.dumps(usual | {"id": "m1", "data": 1}), 1, properties=structured)
        device.publish(f"in-{bus}/d7", "2", 1, properties=binary)
        found = [got.get(timeout=PATIENCE_S) for _ in range(2)]
    assert all([one.properties is not None and one.properties.ContentType == STRUCTURED for one in found])
    documents = sorted([json.loads(one.payload) for one in found], key=lambda one: str(one["id"]))
    wanted = [usual | {"id": f"m{n}", "datacontenttype": JSON, "data": n} for n in (1, 2)]
    assert documents == wanted
