"""Records from RocketMQ's messages and the other way round, beside a reader written from RocketMQ's layout."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidMessage
from penstock.protocol.properties import ORIGIN_TOPIC
from remoting.records import (
    Sent,
    as_client_reads,
    batch_of,
    encode_records,
    offset_ids,
    properties_of,
    property_of,
    sent_of,
    topic_of,
)
from tests.remoting.remoting_rig import Seen, seen

HOST = bytes((10, 0, 0, 7, 0, 0, 0x2A, 0x9F))


def record(topic: str = "t", body: bytes = b"b", flag: int = 0, **properties: str) -> bytes:
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    (made,) = encode_records(topic.encode(), [sent_of(body, text, flag, lambda: "made")], 3, 17, 0x701, HOST, 2)
    return made


@given(st.binary(max_size=300), st.integers(0, (1 << 31) - 1), st.text("ab", max_size=127).filter(bool))
def test_a_client_reads_what_another_has_sent(body: bytes, flag: int, topic: str) -> None:
    made = as_client_reads(record(topic, body, flag, TAGS="x"), 394, HOST)
    assert made is not None
    one = Seen(made)
    assert (one.topic, one.body, one.flag, one.attempts, one.properties["TAGS"]) == (topic, body, flag, 2, "x")
    assert made[64:72] == HOST
    assert int.from_bytes(made[:4], "big") == len(made)


def test_a_retry_names_its_first_topic_where_clients_look_for_it() -> None:
    made = as_client_reads(record("%RETRY%g", **{ORIGIN_TOPIC: "orders"}), 464, HOST)
    assert made is not None
    assert Seen(made).properties["RETRY_TOPIC"] == "orders"
    plain = as_client_reads(record("orders", **{ORIGIN_TOPIC: "x"}), 464, HOST)
    assert plain is not None
    assert "RETRY_TOPIC" not in Seen(plain).properties


@pytest.mark.parametrize(
    ("text", "flag"),
    [("7", 7), ("-1", 0xFFFF_FFFF), *[(text, 0) for text in ("", "-", "--5", "+5", "x", "\u00b2", "9" * 5_000)]],
)
def test_a_flag_that_is_no_number_is_0(text: str, flag: int) -> None:
    made = as_client_reads(record(RMQ_FLAG=text), 464, HOST)
    assert made is not None
    assert Seen(made).flag & 0xFFFF_FFFF == flag


@pytest.mark.parametrize(("length", "magic"), [(127, "daa320a7"), (128, "daa320ab")])
def test_version_1_has_topics_of_127_bytes_and_only_5_0_reads_longer_ones(length: int, magic: str) -> None:
    of_5, of_4 = (as_client_reads(record("x" * length), version, HOST) for version in (398, 394))
    assert of_5 is not None
    assert (Seen(of_5).topic, Seen(of_5).magic.hex()) == ("x" * length, magic)
    assert (of_4 is not None) is (length == 127)


@given(st.dictionaries(st.text("abUNIQ_KEY", min_size=1), st.text("abUNIQ_KEY"), max_size=4), st.booleans())
def test_properties_are_stored_as_they_came_with_a_unique_id(properties: dict[str, str], ends: bool) -> None:
    text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
    made = sent_of(b"", text + "\x02" if ends and text else text, 0, lambda: "made")
    stored = Seen(record_of(made)).properties
    assert stored == properties | {"UNIQ_KEY": properties.get("UNIQ_KEY") or "made"}
    assert made.unique_id == stored["UNIQ_KEY"]


def record_of(sent: Sent) -> bytes:
    (record,) = encode_records(b"t", [sent], 0, 1, 0, HOST)
    made = as_client_reads(record, 464, HOST)
    assert made is not None
    return made


def test_topic_and_properties_are_found_behind_any_body() -> None:
    made = record("some-topic", bytes(5000), UNIQ_KEY="u")
    assert (topic_of(made), property_of(made, "UNIQ_KEY"), property_of(made, "none")) == ("some-topic", "u", "")


def test_an_offset_id_names_host_and_position() -> None:
    made = offset_ids(HOST, (1234, 255))
    assert made == f"0A00000700002A9F{1234:016X},0A00000700002A9F{255:016X}"


def test_properties_may_end_with_a_separator_but_not_be_penstocks() -> None:
    assert properties_of("a\x01b\x02") == {"a": "b"}
    assert properties_of("") == {}
    with pytest.raises(InvalidMessage, match="MQTT_CLIENT"):
        properties_of("MQTT_CLIENT\x01me")


@given(st.binary(max_size=120))
def test_any_batch_is_messages_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(InvalidMessage):
        assert batch_of(data, lambda: "made")


def test_records_end_to_end_are_told_apart() -> None:
    one, two = record(body=b"1"), record(body=b"2")
    assert [found.body for found in seen(one + two)] == [b"1", b"2"]
