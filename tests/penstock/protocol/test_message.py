"""The message and its bytes: golden bytes, round trips, and damage that is refused."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidMessage, TooLarge
from penstock.protocol import message as module
from penstock.protocol.message import (
    ANY_QUEUE,
    BODY_BYTES_MAX,
    ENTRY,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    OFFSETS,
    OFFSETS_AT,
    PROPERTIES_BYTES_MAX,
    QUEUE_ID_AT,
    RECORD_BYTES_MIN,
    STORED,
    STORED_AT,
    Message,
    check_record,
    check_tail,
    decode_batch,
    decode_message,
    decode_properties,
    encode_message,
    encode_properties,
    encode_record,
    mqtt_name,
    property_of,
    record_body,
    record_properties,
    record_tail,
    record_topic,
    tag_hash,
    topic_of_tail,
)
from penstock.protocol.received import MessageQueue

SAMPLE = Message(
    topic="sensors",
    body=b"21.5",
    key="d7",
    tag="t",
    properties={"unit": "C"},
    mqtt_topic="sensors/d7/temperature",
    qos=1,
    retain=True,
    id="u-1",
)
PROPERTIES = b"MQTT_TOPIC\x01sensors/d7/temperature\x02KEYS\x01d7\x02TAGS\x01t\x02unit\x01C\x02UNIQ_KEY\x01u-1"

# Text without the two separators; surrogates are no Unicode text.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)
messages = st.builds(
    Message,
    topic=st.text("abcXYZ09-_%|", min_size=1, max_size=40),
    body=st.binary(max_size=200),
    key=words,
    tag=words,
    id=words,
    mqtt_topic=words,
    properties=st.dictionaries(
        words.filter(lambda word: word and word not in module.RESERVED_PROPERTIES), words, max_size=5
    ),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    born_ms=st.just(0),
)


def test_a_record_has_the_golden_bytes() -> None:
    golden = b"".join(
        [
            (88 + 4 + 2 + 7 + 2 + len(PROPERTIES)).to_bytes(4, "big"),  # 1 size
            bytes.fromhex("daa320ab"),  # 2 magic of version 2
            (zlib.crc32(b"21.5") & 0x7FFFFFFF).to_bytes(4, "big"),  # 3 body checksum
            bytes.fromhex("ffffffff"),  # 4 queue id: any
            bytes.fromhex("00000005"),  # 5 flag: QoS 1, retain
            bytes(8),  # 6 queue offset
            bytes(8),  # 7 position
            bytes(4),  # 8 system flag
            (1_700_000_000_123).to_bytes(8, "big"),  # 9 born time
            bytes(8),  # 10 born host
            bytes(8),  # 11 store time
            bytes(8),  # 12 store host
            bytes(4),  # 13 reconsume times
            bytes(8),  # 14 prepared transaction offset
            (4).to_bytes(4, "big") + b"21.5",  # 15 body
            (7).to_bytes(2, "big") + b"sensors",  # 16 topic
            len(PROPERTIES).to_bytes(2, "big") + PROPERTIES,  # 17 properties
        ]
    )
    assert encode_message(SAMPLE, born_ms=1_700_000_000_123) == golden


def test_the_smallest_record_has_the_smallest_size() -> None:
    assert len(encode_record(b"t", b"", b"")) == RECORD_BYTES_MIN + 1 == 93


@given(messages)
@settings(max_examples=75)
def test_a_message_comes_back_from_its_record(message: Message) -> None:
    back = decode_message(encode_message(message))
    for name in ("topic", "body", "key", "tag", "id", "mqtt_topic", "properties", "qos", "retain", "name"):
        assert getattr(back, name) == getattr(message, name)
    assert back.queue == MessageQueue("", message.topic, ANY_QUEUE)


def test_what_the_broker_fills_in_is_read_from_its_places() -> None:
    record = bytearray(encode_message(SAMPLE, queue_id=3, born_ms=7))
    record[QUEUE_ID_AT : QUEUE_ID_AT + 4] = (9).to_bytes(4, "big")
    OFFSETS.pack_into(record, OFFSETS_AT, 1 << 40, 1 << 50)
    STORED.pack_into(record, STORED_AT, 1_700_000_000_000, bytes(8))
    back = decode_message(record)
    assert (back.queue.number, back.offset, back.position) == (9, 1 << 40, 1 << 50)
    assert (back.born_ms, back.stored_ms) == (7, 1_700_000_000_000)
    assert back.body == SAMPLE.body


def test_parts_of_a_record_are_read_without_decoding_it() -> None:
    record = encode_message(SAMPLE)
    assert record_topic(record) == b"sensors"
    assert record_body(record) == b"21.5"
    assert record_properties(record) == PROPERTIES
    assert mqtt_name(b"sensors", PROPERTIES) == "sensors/d7/temperature"
    assert mqtt_name(b"sensors", b"MQTT_TOPIC\x01a/b") == "a/b"
    assert mqtt_name(b"sensors", b"unit\x01C") == "sensors"


@given(st.dictionaries(words.filter(bool), words, max_size=6), words)
def test_one_property_is_found_in_the_undecoded_string(properties: dict[str, str], name: str) -> None:
    expected = properties.get(name, "").encode() if name else b""
    if name:
        assert property_of(encode_properties(properties), name.encode()) == expected


@given(st.dictionaries(words, words, max_size=8))
def test_properties_come_back_from_their_string(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_a_property_string_may_end_with_a_separator() -> None:
    assert decode_properties(b"a\x01b\x02c\x01d\x02") == {"a": "b", "c": "d"}


@pytest.mark.parametrize("raw", [b"a", b"a\x01b\x01c", b"\xff\x01b", b"a\x01b\x02c"])
def test_a_damaged_property_string_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_properties(raw)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message(topic=""), InvalidMessage),
        (Message(topic="t" * 256), InvalidMessage),
        (Message(topic="t", body=bytes(BODY_BYTES_MAX + 1)), TooLarge),
        (Message(topic="t", properties={"a": "x" * PROPERTIES_BYTES_MAX}), TooLarge),
        (Message(topic="t", qos=3), InvalidMessage),
        (Message(topic="t", properties={"KEYS": "x"}), InvalidMessage),
        (Message(topic="t", properties={"a\x01": "x"}), InvalidMessage),
        (Message(topic="t", properties={"a": "x\x02"}), InvalidMessage),
        (Message(topic="t", key="\ud800"), InvalidMessage),
        (Message(topic="t", key="\x01\ud800"), InvalidMessage),
        (Message(topic="t", properties={"KEYS_BASE64": "eA=="}), InvalidMessage),
    ],
)
def test_a_message_outside_its_limits_is_refused(message: Message, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_message(message)


def test_a_message_at_its_limits_is_taken() -> None:
    largest = Message(topic="t" * 255, body=bytes(BODY_BYTES_MAX), properties={"a": "x" * (PROPERTIES_BYTES_MAX - 2)})
    record = encode_message(largest)
    assert len(record) == module.RECORD_BYTES_MAX
    check_record(record)


@given(st.binary(min_size=1, max_size=40) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
@example(b"\xff\x00")
@example("a\x01b")
@example(b"a\x02b")
def test_any_key_comes_back_as_text_where_it_is_utf_8_and_as_bytes_where_it_is_not(key: str | bytes) -> None:
    message = decode_message(encode_message(Message("t", key=key)))
    raw = key.encode() if isinstance(key, str) else key
    try:
        assert message.key == raw.decode()
    except UnicodeDecodeError:
        assert message.key == raw
    assert message.key_bytes == Message("t", key=key).key_bytes == raw
    assert message.properties == {}


def test_a_key_that_is_text_has_the_bytes_that_it_always_had() -> None:
    for key in ("d7", b"d7"):
        assert record_properties(encode_message(Message("t", key=key))) == b"KEYS\x01d7"
    assert record_properties(encode_message(Message("t", key=b"\xff"))) == b"KEYS_BASE64\x01/w=="


def test_what_somebody_else_wrote_under_the_name_of_a_key_is_no_key() -> None:
    record = encode_record(b"t", b"", b"KEYS_BASE64\x01no base64")
    assert decode_message(record).key == ""


@pytest.mark.parametrize("size", [0, 2, 32_767, 65_534, 65_535, 65_536, PROPERTIES_BYTES_MAX])
def test_a_property_string_of_any_size_comes_back(size: int) -> None:
    properties = b"a\x01" + b"x" * (size - 2) if size else b""
    record = encode_record(b"t", b"body", properties)
    check_record(record)
    tail = record_tail(b"t", properties)
    assert record.endswith(b"body" + tail)
    assert tail[3:5] == min(size, 0xFFFF).to_bytes(2, "big")
    assert check_tail(tail) == 5
    assert record_properties(record) == properties
    for cut in (record[:-1], record + b"x", record[:-size] if size else record[:-2]):
        with pytest.raises(InvalidMessage):
            check_record(cut)
    for cut in (tail[:-1] if size <= 0xFFFF else tail[:2], tail[:3] + b"xx" + tail[5:]):
        with pytest.raises(InvalidMessage):
            check_tail(cut)


@given(st.data())
@settings(max_examples=75)
def test_a_record_with_any_changed_byte_is_refused_or_still_whole(data: st.DataObject) -> None:
    """The lengths and the body are guarded here; the log's frame guards every byte."""
    record = bytearray(encode_message(SAMPLE))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    guarded = {*range(12), *range(module.BODY_AT - 4, module.BODY_AT + 4)}
    try:
        check_record(record)
    except InvalidMessage:
        return
    assert at not in guarded


@given(st.integers(0, 200))
def test_a_record_cut_or_continued_is_refused(size: int) -> None:
    record = encode_message(SAMPLE)
    if size != len(record):
        with pytest.raises(InvalidMessage):
            decode_message((record + bytes(200))[:size])


@given(st.binary(max_size=300))
@settings(max_examples=75)
def test_any_bytes_are_a_message_or_invalid_and_nothing_else(data: bytes) -> None:
    with suppress(InvalidMessage):
        decode_message(data)


@given(st.binary(max_size=120), st.binary(min_size=1, max_size=20), st.binary(max_size=60))
@settings(max_examples=75)
def test_a_whole_record_of_any_content_is_a_message_or_invalid(body: bytes, topic: bytes, properties: bytes) -> None:
    record = encode_record(topic, body, properties, flag=0xFFFFFFFF)
    check_record(record)
    with suppress(InvalidMessage):  # properties or topic are no text
        assert decode_message(record).body == body


def test_a_pulled_batch_gives_the_offsets_of_the_pulled_queue() -> None:
    records = [encode_message(Message(topic="t", body=body)) for body in (b"one", b"", b"three")]
    frames = [FRAME_HEAD.pack(0, module.FRAME_MAGIC, FRAME_HEAD_BYTES + len(one), 0, 0) + one for one in records]
    entries = [ENTRY.pack(100 + at, 0, len(frame), 0) for at, frame in enumerate(frames)]
    batch = b"".join(entries + frames)
    assert [(offset, one.body) for offset, one in decode_batch(3, batch)] == [
        (100, b"one"),
        (101, b""),
        (102, b"three"),
    ]
    assert list(decode_batch(0, b"")) == []


@given(st.integers(0, 1 << 40), st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes_are_a_batch_or_invalid_and_nothing_else(count: int, data: bytes) -> None:
    with suppress(InvalidMessage):
        list(decode_batch(count, data))


@pytest.mark.parametrize(
    ("tag", "value"),
    [("", 0), ("a", 97), ("TagA", 2598919), ("polygenelubricants", -2147483648), ("é", 233), ("😀", 1772899)],
)
def test_the_hash_of_a_tag_is_javas(tag: str, value: int) -> None:
    assert tag_hash(tag) == value


def test_the_name_is_the_mqtt_topic_or_else_the_topic() -> None:
    assert Message(topic="t", mqtt_topic="a/b").name == "a/b"
    assert Message(topic="t").name == "t"


def test_struct_sizes_are_those_of_the_format_page() -> None:
    sizes = {"RECORD_HEAD": 88, "FRAME_HEAD": 24, "ENTRY": 28, "OFFSETS": 16, "STORED": 16}
    assert {name: getattr(module, name).size for name in sizes} == sizes
    assert isinstance(module.RECORD_HEAD, struct.Struct)


@given(st.text(min_size=1, max_size=60))
def test_a_tail_names_its_topic(topic: str) -> None:
    assert topic_of_tail(record_tail(topic.encode(), b"a\x01b\x02")) == topic
