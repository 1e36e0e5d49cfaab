"""What is kept of a session comes back as it was; what is no such thing is an empty state."""

from __future__ import annotations

from typing import Any, cast

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rig import Gateway

from gateway.mqtt.packets import Publish
from gateway.mqtt.properties import Properties
from gateway.sessions.saver import flow_of
from gateway.sessions.session_state import (
    NO_FLOW,
    Place,
    Sent,
    Will,
    decode_flow,
    decode_terms,
    decode_will,
    encode_flow,
    encode_terms,
    encode_will,
    read_flow,
    read_terms,
)
from gateway.sessions.subscriptions import Redo, Subscription
from penstock.errors import Damaged
from penstock.protocol.requests.sessions import NO_WILL, saved_places

wills = st.builds(
    Will,
    st.text(),
    st.binary(),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 1 << 32),
    st.integers(-1, 9),
    st.binary(),
)


@given(st.none() | wills)
def test_a_will_comes_back_as_it_was(will: Will | None) -> None:
    assert decode_will(encode_will(will)) == will


def test_no_will_is_told_apart_from_a_will_that_stays_as_it_is() -> None:
    assert encode_will(None) == NO_WILL != b""
    assert decode_will(b"") is None


def test_subscriptions_come_back_in_their_order_with_all_options() -> None:
    kept = [
        Subscription(filter, qos, no_local=True, as_published=qos == 1, retain_handling=2, identifier=identifier)
        for filter, qos, identifier in (("b", 2, 0), ("a/+", 1, 268_435_455))
    ]
    again = decode_terms(encode_terms(kept))
    assert encode_terms(again) == encode_terms(kept)
    assert [(one.filter, one.qos, one.identifier) for one in again] == [("b", 2, 0), ("a/+", 1, 268_435_455)]


def test_places_and_exchanges_are_named_by_queue_and_offset() -> None:
    gateway = Gateway()
    client = gateway.connect("c", level=5, clean_start=False, properties=Properties(session_expiry_interval=9))
    gateway.connect("p").publish("t/1", b"kept", 1, packet_id=1, retain=True)
    client.subscribe("t/+", qos=2, properties=Properties(subscription_identifiers=(7,)))
    gateway.produce("t/2", b"live", qos=1)
    gateway.round()
    sent = [packet for packet in client.got() if isinstance(packet, Publish)]
    session = client.device.session
    assert session is not None
    assert session.lasting is not None
    unused = {("u", "elsewhere"): Place(5, 4, 3, (Redo(9, 8, "x"),))}
    session.lasting.places.update(unused)
    flow = flow_of(session)
    assert decode_flow(encode_flow(flow)) == flow
    [cursor] = session.overlap.cursors
    broker = cursor.feed.broker.name
    assert flow.places == {
        ("t/+", broker): Place(cursor.next, cursor.start, cursor.seen, ()),
        **unused,
    }
    kept, live = [message.position for message in gateway.broker.messages()]
    assert flow.sent == [
        Sent(sent[0].packet_id, "t/+", broker, 0, "t:0", 1, True, (7,), False, "t/1", kept),
        Sent(sent[1].packet_id, "t/+", broker, cursor.next - 1, "", 1, False, (7,), False, "", live),
    ]
    assert (flow.releasing, flow.next_id) == ([], session.next_id)


def test_what_is_still_to_be_closed_comes_back_and_what_is_no_list_of_filters_does_not() -> None:
    assert decode_flow(encode_flow(NO_FLOW._replace(closing=("b", "$share/g/a")))).closing == ("b", "$share/g/a")
    assert decode_flow(msgpack.packb([[], [], [4], 5, [], []])).closing == ()
    assert decode_flow(msgpack.packb([[], [], [4], 5, [], [], [7]])) == NO_FLOW


@pytest.mark.parametrize("data", [b"\xc1", msgpack.packb(5), msgpack.packb([[1]])])
def test_what_cannot_be_read_is_an_error_and_a_session_that_goes_on_without_it_is_a_line_in_the_log(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for read in (read_terms, read_flow):
        with pytest.raises(Damaged, match="cannot be read"):
            read(data)
    assert (decode_will(data), decode_terms(data), decode_flow(data)) == (None, [], NO_FLOW)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3


def test_where_nothing_was_saved_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert (read_terms(b""), read_flow(b"")) == ([], NO_FLOW)
    assert decode_will(NO_WILL) is None
    assert caplog.records == []


@pytest.mark.parametrize("data", [b"", NO_WILL, msgpack.packb([]), msgpack.packb(5), msgpack.packb("x")])
def test_what_is_no_state_is_an_empty_one(data: bytes) -> None:
    assert decode_will(data) is None
    assert decode_terms(data) == []
    assert decode_flow(data) == NO_FLOW


simple = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary()
foreign = st.recursive(simple, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40)
STATES = [
    [["n", b"p", 1, True, 2, 3, b"", "alice"], ["a", 1, False, False, 0, 0, False, ""]],
    [
        [["f", "b", 1, 2, 3, [[9, 8, "x"]]]],
        [[1, "f", "b", 5, "", 2, False, [7], False, "t"]],
        [4],
        5,
        [["f", "b", 9, "", ["offset", 0, [[0, 1]], "n"], "t"]],
    ],
]


def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """The same with something else in some places."""
    if draw(st.integers(0, 9)) == 0:
        return draw(foreign)
    return [spoiled(draw, one) for one in value] if isinstance(value, list) else value


@st.composite
def nearly_a_state(draw: st.DrawFn) -> bytes:
    [will, term], flow = STATES
    return cast(bytes, msgpack.packb(spoiled(draw, draw(st.sampled_from([will, [term], flow])))))


@given(st.binary() | foreign.map(msgpack.packb) | nearly_a_state())
@example(b"\xff\xff")
@example(b"\xc1")
@example(b"\x81\x80\x01")
@example(msgpack.packb([[1]]))
@example(msgpack.packb([1, 2, 3, 4, 5]))
@example(msgpack.packb([[["a"]], [], [], 1]))
def test_whatever_the_bytes_are_decoding_gives_a_state_that_can_be_kept_again(data: bytes) -> None:
    will, terms, flow = decode_will(data), decode_terms(data), decode_flow(data)
    assert decode_will(encode_will(will)) == will
    assert encode_terms(decode_terms(encode_terms(terms))) == encode_terms(terms)
    assert decode_flow(encode_flow(flow)) == flow


def test_a_place_with_stretches_to_go_over_again_has_reached_the_first_of_them() -> None:
    place = Place(5, 10, 90, ())
    assert place.reached == 90
    assert place._replace(redos=(Redo(9, 50, "f/+"), Redo(9, 40, "+/a"))).reached == 40
    assert place._replace(redos=(Redo(9, -1, "f/+"),)).reached == 9


def test_fields_of_a_newer_gateway_are_passed_over() -> None:
    will = Will("n", b"p", 1, True, 2, 3, b"", "alice")
    assert decode_will(msgpack.packb([*will, "new"])) == will
    assert decode_will(msgpack.packb(will[:-1])) == will._replace(user="")  # one of an older gateway
    [subscription] = decode_terms(msgpack.packb([["a", 1, False, False, 0, 0, False, "", "new"]]))
    assert subscription.filter == "a"
    assert decode_flow(msgpack.packb([[], [], [4], 5, "new"])).releasing == [4]
    sent = Sent(1, "a", "b", 7, "", 1, False, (), False, "", 300)
    assert decode_flow(msgpack.packb([[], [[*sent, "new"]], [], 1])).sent == [sent]
    assert decode_flow(msgpack.packb([[], [sent[:-1]], [], 1])).sent == [sent._replace(position=-1)]


def test_whoever_tells_how_far_sessions_are_behind_finds_their_places() -> None:
    places = {("a/+", "broker-a"): Place(7, 3, 5, (Redo(8, 6, "a/+"),)), ("b", "broker-b"): Place(0, 0, 0, ())}
    assert saved_places(encode_flow(NO_FLOW._replace(places=places))) == [("a/+", "broker-a", 7), ("b", "broker-b", 0)]
    assert saved_places(encode_flow(NO_FLOW)) == []
