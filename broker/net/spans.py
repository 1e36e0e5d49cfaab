"""Traces of stored messages: a message of a recorded W3C trace has a span from its arrival to the answer, as a child of
the span that it names.

The sender alone decides what is recorded. Without a collector this module looks at nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from penstock.errors import PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.message import BODY_AT, topic_of_tail
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Append, Appended, AppendRuns
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.runs import decode_runs
from penstock.protocol.trace_context import TRACEPARENT, TraceContext, trace_of_tail
from penstock.service.extras import needed_extra

SPANS_MAX: Final = 100
"""Maximum number of spans of one request."""
_PARENT: Final = TRACEPARENT.encode()
_Open = list[tuple[int, Callable[[str], None]]]
"""The place in the request of each traced message, and what ends its span."""


class StoreSpans(Protocol):
    """A recorder of traces (``penstock/service/otel_spans.py``)."""

    def begin(self, topic: str, stored: TraceContext) -> Callable[[str], None]:
        """Begins the span of a message that is stored with this context. The returned function ends it; it takes why
        the message was refused, empty for one that is stored."""
        ...

    def close(self) -> None:
        """Exports what there is."""
        ...


def open_store_spans(export: str, broker: str) -> StoreSpans | None:
    """The recorder of a broker's traces; ``None`` without a collector to ``export`` to. Raises ``InvalidConfig`` where
    OpenTelemetry is not installed."""
    if not export:
        return None
    with needed_extra("trace_export", "otel"):
        from penstock.service.otel_spans import OtelStoreSpans, otlp_exporter
    return OtelStoreSpans(otlp_exporter(export), broker)


def traced(spans: StoreSpans, request: Request, on_result: OnResult) -> OnResult:
    """Begins the spans of the traced messages that a request brings; what it returns ends them, and answers."""
    begun: _Open = []
    for at, tail in _tails(request):
        trace = trace_of_tail(tail)
        if trace.is_sampled and len(begun) < SPANS_MAX:
            begun.append((at, spans.begin(topic_of_tail(tail), trace)))
    return partial(_answered, begun, on_result) if begun else on_result


def _answered(begun: _Open, on_result: OnResult, result: Result) -> None:
    refused = {one.at: one.message for one in result.refused} if isinstance(result, Appended) else {}
    why = type(result).__name__ if isinstance(result, PenstockError) else ""
    for at, end in begun:
        end(why or refused.get(at, ""))
    on_result(result)


def _tails(request: Request) -> Iterator[tuple[int, bytes]]:
    """The bytes behind the body of each message that may be traced, with its place in the request; nothing of one that
    cannot be read, which is refused elsewhere."""
    try:
        if isinstance(request, GivenRuns):
            runs = request.runs
        elif isinstance(request, AppendRuns) and _PARENT in bytes(request.body):
            runs = decode_runs(bytes(request.body))
        elif isinstance(request, Append) and _PARENT in bytes(request.body):
            yield from _of_records(bytes(request.body))
            return
        else:
            return
    except PenstockError:
        return
    at = 0
    for run in runs:
        yield at, run.tail
        at += len(run.bodies)


def _of_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = number = 0
    while at + BODY_AT <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size < BODY_AT:
            return
        tail_at = at + BODY_AT + int.from_bytes(data[at + BODY_AT - 4 : at + BODY_AT], "big")
        yield number, data[tail_at : at + size]
        at, number = at + size, number + 1
