"""Spans of programs that send and consume."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Message
from penstock.otel import processing, sending


class Received(NamedTuple):
    topic: str
    properties: MappingProxyType[str, str]


def test_the_span_of_a_consumer_is_a_child_of_the_one_in_which_the_message_was_sent() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with sending(Message("orders", b"new", properties={"a": "b"}), provider) as message:
        assert message.properties["a"] == "b"
    received = Received("orders", MappingProxyType(dict(message.properties)))
    with pytest.raises(ValueError, match="ours"), processing(received, "billing", provider):
        raise ValueError("ours")
    with processing(Received("orders", MappingProxyType({})), provider=provider):
        pass
    sent, failed, alone = exporter.get_finished_spans()
    assert [span.name for span in (sent, failed, alone)] == ["send orders", "process orders", "process orders"]
    assert failed.parent is not None
    assert failed.parent.span_id == sent.context.span_id
    assert failed.context.trace_id == sent.context.trace_id != alone.context.trace_id
    assert dict(failed.attributes or {})["messaging.consumer.group.name"] == "billing"
    assert not failed.status.is_ok
    assert alone.parent is None
