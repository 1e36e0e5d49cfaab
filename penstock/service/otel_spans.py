"""Spans of gateways and brokers by OpenTelemetry's SDK, exported over OTLP (the extra ``otel``).

Whether a publication is recorded is decided before a span is made: its device says so in ``traceparent``, or it is
drawn by ``share``. Exports happen in the SDK's own thread; while the collector is away spans are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from penstock.errors import PenstockError
from penstock.protocol.requests.messages import Appended
from penstock.protocol.requests.request import Result
from penstock.protocol.runs import Run
from penstock.protocol.trace_context import TraceContext
from penstock.version import VERSION

OPEN_MAX: Final = 4096
"""Publications whose spans may be open; the oldest ends without an answer when there is one more."""
EXPORT_S: Final = 2
_NS_OF_MS: Final = 1_000_000
_Pair = tuple[Span, Span]


def otlp_exporter(endpoint: str) -> SpanExporter:
    """An exporter to a collector, for example ``http://127.0.0.1:4318/v1/traces``."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint, timeout=EXPORT_S)


class OtelSpans:
    """The open spans of one gateway.

    Args:
        exporter: where they go.
        gateway: its name, told as ``service.instance.id``.
        share: which part of the publications that are in no trace begin one, 0 to 1.
    """

    def __init__(self, exporter: SpanExporter, gateway: str, share: float) -> None:
        self._provider = _provider(exporter, "penstock-gateway", gateway)
        self._tracer = self._provider.get_tracer("penstock", VERSION)
        self._share = share
        self._drawn = 0.0
        self._is_due = False
        self._begun: _Pair | None = None
        self._open: dict[int, tuple[Run, _Pair]] = {}  # by the identity of the run, which is kept

    def draw(self) -> bool:
        """Whether the next publication begins a trace if it is in none."""
        self._drawn += self._share
        if self._drawn >= 1:
            self._drawn -= 1
            self._is_due = True
        return self._is_due

    def change_share(self, share: float) -> None:
        """Another part of the publications that are in no trace begins one from now on."""
        self._share = share

    def begin(self, name: str, client_id: str, given: TraceContext) -> TraceContext:
        """Begins the spans of a publication; returns the context that it is stored with: its own if unrecorded."""
        if self._begun is not None:
            _end(self._begun, "refused")
            self._begun = None
        if not given.is_sampled and (given.trace_id or not (self._is_due or self.draw())):
            return given
        self._is_due = self._is_due and bool(given.trace_id)
        said = {"messaging.system": "penstock", "messaging.destination.name": name, "messaging.client.id": client_id}
        context = set_span_in_context(NonRecordingSpan(_of(given))) if given.trace_id else None
        outer = self._tracer.start_span("publish", context, SpanKind.SERVER, said)
        inner = self._tracer.start_span("append", set_span_in_context(outer), SpanKind.CLIENT)
        self._begun = outer, inner
        stored = inner.get_span_context()
        return TraceContext(f"{stored.trace_id:032x}", f"{stored.span_id:016x}", True, given.state)

    def carried_by(self, run: Run) -> None:
        """The publication that began last, if it is traced, goes to the broker in this run."""
        if self._begun is None:
            return
        if len(self._open) >= OPEN_MAX:
            _end(self._open.pop(next(iter(self._open)))[1], "no answer")
        self._open[id(run)] = run, self._begun
        self._begun = None

    def answered(self, runs: Sequence[Run], broker: str, result: Result) -> str:
        """Ends the spans of these runs by the broker's answer. Returns the id of one of their traces; empty without."""
        if not self._open:
            return ""
        found, why = "", type(result).__name__ if isinstance(result, PenstockError) else ""
        refused = {one.at for one in result.refused} if isinstance(result, Appended) else frozenset[int]()
        at = 0
        for run in runs:
            held = self._open.pop(id(run), None)
            if held is not None:
                pair = held[1]
                pair[1].set_attribute("server.address", broker)
                _end(pair, why or ("refused" if at in refused else ""))
                found = f"{pair[0].get_span_context().trace_id:032x}"
            at += len(run.bodies)
        return found

    def delivered(self, name: str, stored: TraceContext, stored_ms: int) -> str:
        """Makes the span of a delivery to the subscribers at this gateway. Returns the trace's id."""
        said = {"messaging.system": "penstock", "messaging.destination.name": name}
        parent = set_span_in_context(NonRecordingSpan(_of(stored)))
        self._tracer.start_span("deliver", parent, SpanKind.PRODUCER, said, start_time=stored_ms * _NS_OF_MS).end()
        return stored.trace_id

    def close(self) -> None:
        """Ends all that are open, and exports what there is."""
        pairs = [pair for _, pair in self._open.values()]
        self._open.clear()
        for pair in (*pairs, self._begun):
            if pair is not None:
                _end(pair, "the gateway stopped")
        self._begun = None
        self._provider.shutdown()


class OtelStoreSpans:
    """The spans of one broker: of each traced message, from its coming to the answer.

    Args:
        exporter: where they go.
        broker: its name, told as ``service.instance.id``.
    """

    def __init__(self, exporter: SpanExporter, broker: str) -> None:
        self._provider = _provider(exporter, "penstock-broker", broker)
        self._tracer = self._provider.get_tracer("penstock", VERSION)

    def begin(self, topic: str, stored: TraceContext) -> Callable[[str], None]:
        """Begins the span of a message that is stored with this context. What it returns ends it; it takes why the
        message was refused, empty for one that is stored."""
        said = {"messaging.system": "penstock", "messaging.destination.name": topic}
        parent = set_span_in_context(NonRecordingSpan(_of(stored)))
        return partial(_end_one, self._tracer.start_span("store", parent, SpanKind.SERVER, said))

    def close(self) -> None:
        """Exports what there is."""
        self._provider.shutdown()


def _provider(exporter: SpanExporter, service: str, instance: str) -> TracerProvider:
    told = {"service.name": service, "service.version": VERSION, "service.instance.id": instance}
    provider = TracerProvider(resource=Resource.create(told), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_S * 1000))
    return provider


def _of(given: TraceContext) -> SpanContext:
    flags, state = TraceFlags(TraceFlags.SAMPLED), TraceState.from_header([given.state] if given.state else [])
    return SpanContext(int(given.trace_id, 16), int(given.span_id, 16), True, flags, state)


def _end(pair: _Pair, why: str) -> None:
    outer, inner = pair
    for span in (inner, outer):
        _end_one(span, why)


def _end_one(span: Span, why: str) -> None:
    if why:
        span.set_status(Status(StatusCode.ERROR, why))
    span.end()
