"""The interface to a recorder of traces (``penstock/service/otel_spans.py``).

A publication that belongs to a trace has one span here, with one within for the broker's append; the message is stored
with the context of the latter, so that the spans of its deliveries and of consumers are children of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.protocol.requests.request import Result
from penstock.protocol.runs import Run
from penstock.protocol.trace_context import TraceContext
from penstock.service.extras import needed_extra


class Spans(Protocol):
    """The open spans of one gateway."""

    def draw(self) -> bool:
        """Whether the next publication begins a trace if it is in none."""
        ...

    def change_share(self, share: float) -> None:
        """Another part of the publications that are in no trace begins one from now on, 0 to 1."""
        ...

    def begin(self, name: str, client_id: str, given: TraceContext) -> TraceContext:
        """Begins the spans of a publication under this name. Returns the context that it is stored with."""
        ...

    def carried_by(self, run: Run) -> None:
        """The publication that began last, if it is traced, goes to the broker in this run."""
        ...

    def answered(self, runs: Sequence[Run], broker: str, result: Result) -> str:
        """Ends the spans of these runs by the broker's answer. Returns the id of one of their traces; empty without."""
        ...

    def delivered(self, name: str, stored: TraceContext, stored_ms: int) -> str:
        """Makes the span of a delivery, from its storing to now, as a child of the span that the message is stored
        with. Returns the trace's id."""
        ...

    def close(self) -> None:
        """Ends all that are open, and exports what there is."""
        ...


def open_spans(export: str, gateway: str, share: float) -> Spans | None:
    """The recorder of a gateway's traces; ``None`` without a collector to ``export`` to. Raises ``InvalidConfig``
    where OpenTelemetry is not installed."""
    if not export:
        return None
    with needed_extra("trace_export", "otel"):
        from penstock.service.otel_spans import OtelSpans, otlp_exporter
    return OtelSpans(otlp_exporter(export), gateway, share)
