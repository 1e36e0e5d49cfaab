"""The W3C trace context of a message: ``traceparent`` and ``tracestate``, as native properties and as user properties
of MQTT 5.

A damaged context counts as none; the message itself is taken. Pure and total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.protocol.answers import USER_PROPERTY, packed_property, strings_of
from penstock.protocol.message import property_of

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_PARENT_NAME: Final = TRACEPARENT.encode()
_STATE_NAME: Final = TRACESTATE.encode()
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_STATE: Final = re.compile(r"[ -~]{1,512}")
_NOT_A_VERSION: Final = "ff"
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """The place of a message in a trace.

    Attributes:
        trace_id: 32 hexadecimal digits; empty for no trace.
        span_id: 16 hexadecimal digits, of the span that the next one is a child of.
        is_sampled: whether spans of this trace are recorded.
        state: what vendors keep with it.
    """

    trace_id: str = ""
    span_id: str = ""
    is_sampled: bool = False
    state: str = ""

    @property
    def parent(self) -> str:
        """The value of ``traceparent``; empty for no trace."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}" if self.trace_id else ""

    def properties(self) -> dict[str, str]:
        """The context as properties of a message; none for no trace."""
        if not self.trace_id:
            return {}
        state = {TRACESTATE: self.state} if self.state else {}
        return {TRACEPARENT: self.parent, **state}


NO_TRACE: Final = TraceContext()


def trace_of(properties: Mapping[str, str]) -> TraceContext:
    """The context in a message's properties, ``NO_TRACE`` where there is none."""
    found = _PARENT.fullmatch(properties.get(TRACEPARENT, ""))
    if found is None or found[1] == _NOT_A_VERSION or not int(found[2], 16) or not int(found[3], 16):
        return NO_TRACE
    state = properties.get(TRACESTATE, "")
    is_sampled = bool(int(found[4], 16) & _SAMPLED)
    return TraceContext(found[2], found[3], is_sampled, state if _STATE.fullmatch(state) else "")


def trace_in(application: bytes) -> TraceContext:
    """The same in the properties of an MQTT 5 PUBLISH that belong to its application."""
    if _PARENT_NAME not in application:
        return NO_TRACE
    pairs = [strings for identifier, strings in strings_of(application) if identifier == USER_PROPERTY]
    found = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in reversed(pairs)}
    return trace_of(found)


def trace_stored(properties: bytes) -> TraceContext:
    """The same in the property string of a record."""
    if _PARENT_NAME not in properties:
        return NO_TRACE
    parent, state = property_of(properties, _PARENT_NAME), property_of(properties, _STATE_NAME)
    return trace_of({TRACEPARENT: parent.decode("utf-8", "replace"), TRACESTATE: state.decode("utf-8", "replace")})


def trace_of_tail(tail: bytes) -> TraceContext:
    """The same in all that follows a record's body: topic and properties, each with its length before it."""
    return trace_stored(tail[4 + int.from_bytes(tail[:2], "big") :]) if _PARENT_NAME in tail else NO_TRACE


def recorded_id(context: TraceContext) -> str:
    """The id of a trace whose spans are recorded, and so found again; empty of any other."""
    return context.trace_id if context.is_sampled else ""


def as_user_properties(context: TraceContext) -> bytes:
    """The context as user properties of MQTT 5."""
    pairs = context.properties().items()
    return b"".join([packed_property(USER_PROPERTY, name.encode(), value.encode()) for name, value in pairs])
