"""Spans of what a broker stores."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker.net.lead import BrokerSession
from broker.net.spans import SPANS_MAX, open_store_spans, traced
from penstock.errors import InvalidConfig, Unavailable
from penstock.protocol.message import Message, encode_message
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Append, Appended, AppendRuns, Pull, Pulled, Refused
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import checksum_of, encode_runs, run_of
from penstock.service.metrics import expose
from penstock.service.otel_spans import OtelStoreSpans
from tests.broker.broker_rig import Rig, append

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STORED = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
TRACED = Message("orders", b"new", properties=STORED)
PLAIN = Message("orders", b"new")
UNSAMPLED = Message("orders", b"new", properties={"traceparent": f"00-{TRACE}-{SPAN}-00"})


def as_runs(*messages: Message) -> AppendRuns:
    body = encode_runs([run_of(encode_message(one)) for one in messages])
    return AppendRuns(len(messages), checksum_of(body), body)


def as_given(*messages: Message) -> GivenRuns:
    return GivenRuns(len(messages), [run_of(encode_message(one)) for one in messages])


@pytest.mark.parametrize("request_of", [append, as_runs, as_given])
def test_a_message_that_is_traced_has_a_span_until_its_answer(request_of: Callable[..., Request]) -> None:
    exporter, answers = InMemorySpanExporter(), list[Result]()
    spans = OtelStoreSpans(exporter, "broker-a")
    answer = traced(spans, request_of(PLAIN, TRACED, UNSAMPLED, TRACED), answers.append)
    answer(Appended("disk", refused=(Refused(3, 5, "too large"),)))
    spans.close()
    stored, refused = exporter.get_finished_spans()
    assert stored.name == "store"
    assert stored.parent is not None
    assert (f"{stored.parent.trace_id:032x}", f"{stored.parent.span_id:016x}") == (TRACE, SPAN)
    assert dict(stored.attributes or {})["messaging.destination.name"] == "orders"
    assert dict(stored.resource.attributes)["service.instance.id"] == "broker-a"
    assert stored.status.is_unset
    assert refused.status.description == "too large"
    assert len(answers) == 1


@pytest.mark.parametrize(
    "request_",
    [
        append(PLAIN, UNSAMPLED),
        Append(1, False, b"\x00\x00\x00\x01traceparent" + bytes(200)),
        AppendRuns(1, 0, b"traceparent"),
        Pull("orders:0", 0),
    ],
)
def test_what_is_not_traced_or_cannot_be_read_is_answered_as_ever(request_: Request) -> None:
    answered: Callable[[Result], None] = print
    assert traced(OtelStoreSpans(InMemorySpanExporter(), "b"), request_, answered) is answered


def test_one_request_has_a_limited_number_of_spans_and_an_error_ends_them_all() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelStoreSpans(exporter, "b")
    traced(spans, append(*[TRACED] * (SPANS_MAX + 1)), lambda _: None)(Unavailable("away"))
    spans.close()
    assert [one.status.description for one in exporter.get_finished_spans()] == ["Unavailable"] * SPANS_MAX


def test_a_session_of_a_broker_records_what_it_stores_and_its_figures_name_the_trace() -> None:
    rig, exporter = Rig(), InMemorySpanExporter()
    rig.ask(CreateTopic("orders", 1))
    rig.lead.spans = OtelStoreSpans(exporter, "b")
    session = BrokerSession(rig.lead, 7, ends_rounds=True)
    session.submit(append(TRACED), lambda _: None)
    session.flush()
    assert exporter.get_finished_spans() == ()
    rig.sync()
    assert isinstance(rig.ask(Pull("orders:0", 0)), Pulled)
    rig.lead.spans.close()
    assert len(exporter.get_finished_spans()) == 1
    page = expose(rig.lead.figures(), openmetrics=True)
    for family in ("penstock_delivery_seconds", "penstock_end_to_end_seconds"):
        assert f'{family}_bucket{{le="+Inf"}} 1' in page
        assert sum(f'trace_id="{TRACE}"' in line for line in page.splitlines() if line.startswith(family)) == 1


def test_without_a_collector_there_are_no_spans_and_one_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_store_spans("", "b") is None
    monkeypatch.delitem(sys.modules, "penstock.service.otel_spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(InvalidConfig, match=r"penstock\[otel\]"):
        open_store_spans("http://127.0.0.1:1/v1/traces", "b")
