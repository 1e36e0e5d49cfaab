"""From a publication to a record and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import BROKER, batch_of

from gateway.messages.envelope import Arrival, Origin, arrivals, read_heading, record_properties
from penstock.errors import InvalidMessage
from penstock.protocol.message import NEVER, STORED_AT, decode_message, encode_record, record_tail

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=30)


def one(record: bytes) -> Arrival:
    return arrivals(1, batch_of(record))[0]


@given(TEXT, TEXT, st.binary(max_size=50), st.sampled_from([0, 1, 2]), st.booleans())
def test_a_publication_comes_back_as_it_was(name: str, client: str, payload: bytes, qos: int, retain: bool) -> None:
    properties = record_properties(name, client, client)
    arrival = one(encode_record(b"topic", payload, properties, flag=qos | (4 if retain else 0)))
    assert (arrival.name, arrival.payload, arrival.qos, arrival.retain) == (name, payload, qos, retain)
    assert arrival.name_bytes == name.encode()
    assert arrival.sender == client.encode()
    assert (arrival.expires_ms, arrival.application) == (NEVER, b"")


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1))
def test_mqtt5_properties_come_back_byte_for_byte(application: bytes, expiry_s: int) -> None:
    arrival = one(encode_record(b"t", b"", record_properties("a", "k", "c", expiry_s, application)))
    assert arrival.application == application
    assert arrival.expires_ms == expiry_s * 1000  # stored at 0 here


def test_a_native_producer_reads_the_same_record() -> None:
    message = decode_message(encode_record(b"t", b"x", record_properties("a/b", "key", "dev"), flag=1))
    assert (message.name, message.key, message.qos, message.properties) == ("a/b", "key", 1, {"MQTT_CLIENT": "dev"})


def test_a_record_without_our_properties_has_its_topic_as_name() -> None:
    arrival = one(encode_record(b"orders", b"x", b""))
    assert (arrival.name, arrival.sender) == ("orders", b"")


def test_what_somebody_else_wrote_under_our_name_does_no_harm() -> None:
    arrival = one(encode_record(b"t", b"x", b"MQTT_PROPS\x01soon:%%%"))
    assert (arrival.payload, arrival.application) == (b"x", b"")


@pytest.mark.parametrize(
    ("born_ms", "stored_ms", "from_ms"),
    [
        (0, 7_200_000, 7_200_000),  # a sender that does not say
        (1_000_000, 1_000_005, 1_000_005),
        (1_000_000, 1_600_000, 1_600_000),  # a clock that differs, or a broker that was busy
        (1_000_000, 8_200_000, 1_000_000),  # store times that are two hours ahead
        (9_000_000, 1_000_000, 1_000_000),
    ],
)
def test_an_interval_counts_from_storing_unless_that_is_far_behind_the_birth(
    born_ms: int, stored_ms: int, from_ms: int
) -> None:
    record = bytearray(encode_record(b"t", b"x", record_properties("a", "", "", 10), born_ms=born_ms))
    record[STORED_AT : STORED_AT + 8] = stored_ms.to_bytes(8, "big")
    arrival = one(bytes(record))
    assert (arrival.born_ms, arrival.stored_ms, arrival.expires_ms) == (born_ms, stored_ms, from_ms + 10_000)
    assert arrival.without_payload().expires_ms == arrival.expires_ms


def test_an_expiry_interval_counts_whatever_stands_behind_it() -> None:
    arrival = one(encode_record(b"t", b"x", b"MQTT_PROPS\x0160:%%%"))
    assert (arrival.heading.expiry_s, arrival.application) == (60, b"")


@pytest.mark.parametrize("expiry", [b"99999999999", b"4294967296", b"-1", b"+1", b" 1", b"9" * 5000])
def test_an_expiry_interval_that_mqtt_does_not_have_is_none(expiry: bytes) -> None:
    arrival = one(encode_record(b"t", b"x", b"MQTT_PROPS\x01" + expiry + b":"))
    assert (arrival.payload, arrival.expires_ms) == (b"x", NEVER)


def test_a_batch_gives_offsets_and_positions_in_order() -> None:
    records = [encode_record(b"t", bytes([at]), b"") for at in range(3)]
    got = list(arrivals(3, batch_of(*records)))
    assert [(a.offset, a.position, a.payload) for a in got] == [(7, 100, b"\0"), (8, 101, b"\1"), (9, 102, b"\2")]


@pytest.mark.parametrize("cut", [1, 20, 30, 100])
def test_a_batch_that_is_cut_short_is_refused(cut: int) -> None:
    whole = batch_of(encode_record(b"t", b"payload", b""))
    with pytest.raises(InvalidMessage):
        list(arrivals(1, whole[:-cut]))


@pytest.mark.parametrize("filter", ["t/#", "$share/g/t/#"])
def test_a_message_in_its_topics_queue_knows_the_share_that_brought_it(filter: str) -> None:
    feed = Origin(BROKER, filter, "~filter:t/#")
    record = encode_record(b"t", b"x", record_properties("t/1", "c", "c"), flag=1)
    [arrival] = arrivals(1, batch_of(record), feed)
    origin = arrival.in_its_topic().origin
    assert origin is not None
    assert (origin.filter, origin.queue, origin.is_light) == ("t/#", arrival.queue, False)
    assert origin.through == ((feed, arrival.offset) if filter.startswith("$") else None)


def test_a_long_heading_is_read_each_time_and_not_kept() -> None:
    for size, kept in ((1000, True), (5000, False)):
        tail = record_tail(b"t", record_properties("t/" + "x" * size, "c", "c"))
        one, other = read_heading(tail), read_heading(bytes(bytearray(tail)))
        assert one.name == other.name == "t/" + "x" * size
        assert (one is other) == kept
