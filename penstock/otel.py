"""Traces of programs that send and consume, by OpenTelemetry (``pip install 'penstock[otel]'``).

The spans go to the tracer provider that the program has set up; without one they cost little and go nowhere::

    with sending(Message("orders", b"new")) as message:
        await producer.send(message)

    for message in batch:
        with processing(message, group="my-service"):
            handle(message)

A message carries its trace as the properties ``traceparent`` and ``tracestate`` (W3C), which devices with MQTT 5 see as
user properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.protocol.message import Message
from penstock.version import VERSION

_CONTEXT = TraceContextTextMapPropagator()


class Traced(Protocol):
    """A message that was received."""

    @property
    def topic(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]: ...


@contextmanager
def sending(message: Message, provider: TracerProvider | None = None) -> Iterator[Message]:
    """A span around the sending of a message; gives the message to send, with the span's context in its properties.

    Args:
        message: what is to be sent; it is not changed.
        provider: of the tracer; the program's own if it is None.
    """
    said = {"messaging.system": "penstock", "messaging.destination.name": message.topic}
    tracer = trace.get_tracer("penstock", VERSION, provider)
    with tracer.start_as_current_span(f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=said):
        carried: dict[str, str] = {}
        _CONTEXT.inject(carried)
        yield replace(message, properties={**message.properties, **carried})


@contextmanager
def processing(message: Traced, group: str = "", provider: TracerProvider | None = None) -> Iterator[Span]:
    """A span around the processing of a message that was received, a child of the span that its properties name.

    Args:
        message: a message as a consumer, a reader or a pop consumer gives it.
        group: the consumer group, for the span.
        provider: of the tracer; the program's own if it is None.
    """
    said = {"messaging.system": "penstock", "messaging.destination.name": message.topic}
    if group:
        said["messaging.consumer.group.name"] = group
    tracer = trace.get_tracer("penstock", VERSION, provider)
    context = _CONTEXT.extract(dict(message.properties))
    with tracer.start_as_current_span(f"process {message.topic}", context, SpanKind.CONSUMER, said) as span:
        yield span
