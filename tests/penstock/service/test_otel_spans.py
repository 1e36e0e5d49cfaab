"""Spans by OpenTelemetry's SDK, as a gateway records them."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.errors import Unavailable
from penstock.protocol.requests.messages import Appended, Refused
from penstock.protocol.runs import Run
from penstock.protocol.trace_context import NO_TRACE, TraceContext
from penstock.service.otel_spans import OPEN_MAX, OtelSpans

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
DEVICE = TraceContext(TRACE, SPAN, True, "vendor=1")


def run() -> Run:
    return Run(b"tail", 1, 0, [b"body"])


def ended(exporter: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    return exporter.get_finished_spans()


def test_a_publication_of_a_sampled_device_has_two_spans_and_is_stored_with_the_inner_one() -> None:
    exporter = InMemorySpanExporter()
    spans, carrier = OtelSpans(exporter, "gw", 0.0), run()
    stored = spans.begin("sensors/d7", "d7", DEVICE)
    spans.carried_by(carrier)
    assert spans.answered([run()], "b:1", Appended("disk")) == ""  # another batch
    assert spans.answered([run(), carrier], "b:1", Appended("disk")) == TRACE
    spans.close()
    inner, outer = ended(exporter)
    assert (outer.name, inner.name) == ("publish", "append")
    assert outer.parent is not None
    assert inner.parent is not None
    assert f"{outer.parent.span_id:016x}" == SPAN
    assert inner.parent.span_id == outer.context.span_id
    assert stored == TraceContext(TRACE, f"{inner.context.span_id:016x}", True, "vendor=1")
    assert dict(outer.attributes or {})["messaging.destination.name"] == "sensors/d7"
    assert dict(inner.attributes or {}) == {"server.address": "b:1"}
    assert outer.status.is_unset


def test_a_device_that_is_not_sampled_is_not_recorded_and_keeps_its_context() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 1.0)
    quiet = DEVICE._replace(is_sampled=False)
    assert spans.begin("a", "c", quiet) == quiet
    spans.carried_by(run())
    spans.close()
    assert ended(exporter) == ()


def test_a_share_of_the_others_begins_a_trace() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 0.25)
    found = [spans.begin("a", "c", NO_TRACE) for _ in range(40)]
    assert sum(one.is_sampled for one in found) == 10
    assert len({one.trace_id for one in found}) == 11
    assert OtelSpans(exporter, "gw", 0.0).begin("a", "c", NO_TRACE) == NO_TRACE


def test_what_is_refused_or_unanswered_ends_with_its_reason() -> None:
    exporter = InMemorySpanExporter()
    spans, one, other = OtelSpans(exporter, "gw", 1.0), run(), run()
    for carrier in (one, other):
        spans.begin("a", "c", NO_TRACE)
        spans.carried_by(carrier)
    spans.answered([one, other], "b:1", Appended("disk", refused=(Refused(1, 5, ""),)))
    spans.begin("a", "c", NO_TRACE)
    spans.carried_by(one)
    spans.answered([one], "b:1", Unavailable("away"))
    spans.begin("a", "c", NO_TRACE)  # never carried: its properties were too long
    spans.begin("a", "c", NO_TRACE)
    spans.carried_by(one)
    spans.close()
    told = [span.status.description for span in ended(exporter) if span.name == "publish"]
    assert told == [None, "refused", "Unavailable", "refused", "the gateway stopped"]


def test_only_so_many_are_open() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(exporter, "gw", 1.0)
    carriers = [run() for _ in range(OPEN_MAX + 2)]
    for carrier in carriers:
        spans.begin("a", "c", NO_TRACE)
        spans.carried_by(carrier)
    assert spans.answered(carriers[:2], "b:1", Appended("disk")) == ""
    assert spans.answered(carriers[2:3], "b:1", Appended("disk")) != ""
    spans.close()
