"""W3C trace context in messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.trace_context import NO_TRACE, TraceContext, as_user_properties, trace_in, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_read_from_properties_and_written_back() -> None:
    found = trace_of({"traceparent": PARENT, "tracestate": "vendor=1"})
    assert found == TraceContext(TRACE, SPAN, True, "vendor=1")
    assert found.properties() == {"traceparent": PARENT, "tracestate": "vendor=1"}
    assert trace_of({"traceparent": f"00-{TRACE}-{SPAN}-00"}) == TraceContext(TRACE, SPAN, False)
    assert trace_of({"traceparent": f"cc-{TRACE}-{SPAN}-03"}).is_sampled


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        PARENT + "-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
    ],
)
def test_a_damaged_context_is_none_and_its_state_is_not_kept(parent: str) -> None:
    assert trace_of({"traceparent": parent, "tracestate": "vendor=1"}) == NO_TRACE
    assert NO_TRACE.properties() == {}


def test_a_context_goes_through_user_properties_of_mqtt_beside_others() -> None:
    context = TraceContext(TRACE, SPAN, True, "vendor=1")
    before = b"\x26\x00\x01a\x00\x01b\x03\x00\x04text"
    assert trace_in(before + as_user_properties(context)) == context
    assert trace_in(before) == NO_TRACE
    assert as_user_properties(NO_TRACE) == b""


@given(st.binary(max_size=60))
def test_any_bytes_give_a_context_or_none(data: bytes) -> None:
    for application in (data, b"\x26\x00\x0btraceparent" + data):
        found = trace_in(application)
        assert found == NO_TRACE or len(found.parent) == 55
