"""Traces of publications through a whole gateway: device, gateway, log, consumer."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rig import Gateway

from gateway.figures import Figures
from gateway.mqtt.packets import Publish
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from gateway.publishing.spans import open_spans
from penstock.errors import InvalidConfig
from penstock.protocol.message import BODY_AT, Message, decode_properties, record_body
from penstock.service.metrics import expose
from penstock.service.otel_spans import OtelSpans

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_without_a_collector_there_are_no_spans() -> None:
    assert open_spans("", "gw", 1.0) is None


def test_a_collector_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.service.otel_spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(InvalidConfig, match=r"penstock\[otel\]"):
        open_spans("http://127.0.0.1:1/v1/traces", "gw", 1.0)


def properties_in(record: bytes) -> dict[str, str]:
    tail = record[BODY_AT + len(record_body(record)) :]
    return decode_properties(tail[4 + int.from_bytes(tail[:2], "big") :])


def with_context(*pairs: tuple[str, str]) -> Properties:
    return replace(NO_PROPERTIES, user_properties=pairs)


def test_a_trace_goes_from_a_device_over_the_gateway_into_the_log_and_to_subscribers() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 0.0)
    gateway = Gateway(spans=spans)
    sender, reader = gateway.connect("d7", level=5), gateway.connect("r", level=5)
    reader.subscribe("sensors/#")
    context = with_context(("unit", "C"), ("traceparent", PARENT))
    sender.send(Publish("sensors/d7", b"21", 1, packet_id=1, properties=context))
    [got] = [one for one in reader.got() if isinstance(one, Publish)]
    assert got.properties.user_properties == context.user_properties  # unaltered (MQTT-3.3.2-17)
    [stored] = gateway.broker.messages()
    page = expose(Figures(gateway.parts).read(), openmetrics=True)
    spans.close()
    inner, outer, delivery = exporter.get_finished_spans()
    assert delivery.parent is not None
    assert (delivery.name, delivery.parent.span_id) == ("deliver", inner.context.span_id)
    assert dict(delivery.attributes or {})["messaging.destination.name"] == "sensors/d7"
    assert outer.parent is not None
    assert (f"{outer.parent.trace_id:032x}", f"{outer.parent.span_id:016x}") == (TRACE, SPAN)
    assert stored.properties["traceparent"] == f"00-{TRACE}-{inner.context.span_id:016x}-01"
    assert f'gateway_publish_seconds_bucket{{le="0.0005"}} 1 # {{trace_id="{TRACE}"}} 0' in page
    for family in ("gateway_delivery_seconds", "gateway_end_to_end_seconds"):
        assert sum(f'trace_id="{TRACE}"' in line for line in page.splitlines() if line.startswith(family)) == 1


def test_each_traced_message_of_a_batch_has_a_delivery_of_its_own() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 0.0)
    gateway = Gateway(spans=spans)
    reader = gateway.connect("r", level=5)
    reader.subscribe("alerts/#")
    for properties in ({"traceparent": PARENT}, {"traceparent": PARENT[:-1] + "0"}, {}, {"traceparent": PARENT}):
        gateway.broker.produce(Message("alerts", b"hot", mqtt_topic="alerts/1", properties=properties))
    gateway.round()
    spans.close()
    assert [one.name for one in exporter.get_finished_spans()] == ["deliver", "deliver"]


def test_a_share_of_what_comes_the_straight_way_begins_a_trace() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 0.5)
    gateway = Gateway(spans=spans)
    sender = gateway.connect("d7", level=4)
    for number in range(20):
        sender.send(Publish("sensors/d7", b"%d" % number, 1, packet_id=number + 1))
    spans.close()
    traced = ["traceparent" in message.properties for message in gateway.broker.messages()]
    assert len(traced) == 20
    assert 8 <= sum(traced) <= 11
    assert len(exporter.get_finished_spans()) == 2 * sum(traced)
    assert gateway.broker.bodies() == [b"%d" % number for number in range(20)]


def test_a_program_s_trace_reaches_devices_as_user_properties() -> None:
    gateway = Gateway()
    reader = gateway.connect("r", level=5)
    reader.subscribe("alerts/#")
    properties = {"traceparent": PARENT, "tracestate": "vendor=1", "other": "stays"}
    gateway.broker.produce(Message("alerts", b"hot", mqtt_topic="alerts/1", properties=properties))
    gateway.broker.produce(Message("alerts", b"bad", mqtt_topic="alerts/1", properties={"traceparent": "no"}))
    gateway.round()
    hot, bad = [one for one in reader.got() if isinstance(one, Publish)]
    assert hot.properties.user_properties == (("traceparent", PARENT), ("tracestate", "vendor=1"))
    assert bad.properties.user_properties == ()
