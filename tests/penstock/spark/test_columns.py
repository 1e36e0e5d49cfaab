from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_queues import STORED_MS, batch_of, frame_of

from penstock.errors import InvalidMessage
from penstock.protocol.compression import COMPRESSED, LZ4, SYSTEM_FLAG_AT, compress
from penstock.protocol.message import BODY_AT, FRAME_HEAD_BYTES, Message, decode_batch
from penstock.spark.columns import BASE, COLUMNS, Origin, arrow_schema, find_borders, to_record_batch

ORIGIN = Origin("telemetry", "broker-a", 3)
ALL = tuple(COLUMNS)
FOR_EVER = 1 << 60


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def rows(*messages: Message, columns: tuple[str, ...] = ALL, end: int = FOR_EVER) -> list[dict]:
    frames = [frame_of(one, 3, at, 1000 * at, STORED_MS + at) for at, one in enumerate(messages)]
    borders = find_borders(len(frames), batch_of(frames), end)
    return to_record_batch(borders, ORIGIN, columns).to_pylist()


def test_every_column_of_a_message_comes_out() -> None:
    message = Message(
        "telemetry",
        b"21.5",
        key="dev-1",
        tag="indoor",
        properties={"MQTT": "5", "site": "Kiel ü", "traceparent": PARENT},
        mqtt_topic="telemetry/dev-1/temp",
        qos=2,
        retain=True,
        id="u-1",
    )
    (row,) = rows(message)
    row["properties"] = dict(row["properties"])
    assert row == {
        "key": b"dev-1",
        "value": b"21.5",
        "topic": "telemetry",
        "queue": 3,
        "partition": 3,
        "offset": 0,
        "timestamp": datetime.fromtimestamp(STORED_MS / 1000, UTC),
        "timestampType": 1,
        "born_timestamp": datetime.fromtimestamp((STORED_MS - 5) / 1000, UTC),
        "mqtt_topic": "telemetry/dev-1/temp",
        "client_id": None,
        "qos": 2,
        "retain": True,
        "tags": "indoor",
        "msg_id": "u-1",
        "properties": {
            "MQTT_TOPIC": "telemetry/dev-1/temp",
            "KEYS": "dev-1",
            "TAGS": "indoor",
            "UNIQ_KEY": "u-1",
            "MQTT": "5",
            "site": "Kiel ü",
            "traceparent": PARENT,
        },
        "traceparent": PARENT,
        "broker": "broker-a",
        "position": 0,
    }


def test_a_message_without_mqtt_topic_bears_its_topics_name() -> None:
    (row,) = rows(Message("telemetry", b""))
    assert (row["mqtt_topic"], row["key"], row["tags"], row["properties"]) == ("telemetry", None, None, [])


def test_a_property_is_found_by_its_whole_name_only() -> None:
    (row,) = rows(Message("telemetry", b"", properties={"XKEYS": "no", "note": "KEYS", "KEYS2": "no"}))
    assert row["key"] is None


def test_a_key_may_hold_line_ends() -> None:
    assert rows(Message("telemetry", b"", key="a\nb"), columns=("key",)) == [{"key": b"a\nb"}]


def test_text_that_is_no_utf8_does_not_end_the_query() -> None:
    frame = frame_of(Message("telemetry", b"", mqtt_topic="telemetry/dXX"), 3, 0, 0, STORED_MS).replace(
        b"XX", b"\xff\xfe"
    )
    borders = find_borders(1, batch_of([frame]), FOR_EVER)
    batch = to_record_batch(borders, ORIGIN, ("mqtt_topic", "properties"))
    assert batch.to_pylist() == [{"mqtt_topic": "telemetry/d\ufffd\ufffd", "properties": []}]


def test_rows_from_the_end_of_the_range_on_are_left_out() -> None:
    messages = [Message("telemetry", b"%d" % at) for at in range(5)]
    assert rows(*messages, columns=("value",), end=2) == [{"value": b"0"}, {"value": b"1"}]
    assert rows(*messages, columns=ALL, end=0) == []


def test_bodies_may_be_empty_and_large_side_by_side() -> None:
    bodies = [b"", b"x" * 100_000, b"", b"y"]
    assert [row["value"] for row in rows(*[Message("t", body) for body in bodies])] == bodies


@given(
    st.lists(
        st.builds(
            Message,
            topic=st.just("telemetry"),
            body=st.binary(max_size=40),
            key=st.text("abü\n ", max_size=5),
            tag=st.text("xy", max_size=3),
            mqtt_topic=st.text("ab/ü", max_size=8),
            qos=st.integers(0, 2),
            retain=st.booleans(),
        ),
        max_size=12,
    )
)
def test_the_vectorised_cut_gives_what_decoding_one_by_one_gives(messages: list[Message]) -> None:
    frames = [frame_of(one, 3, at, 0, STORED_MS) for at, one in enumerate(messages)]
    batch = batch_of(frames)
    expected = [
        (offset, one.body, one.key.encode() or None, one.name, one.tag or None, one.qos, one.retain)
        for offset, one in decode_batch(len(frames), batch)
    ]
    columns = ("offset", "value", "key", "mqtt_topic", "tags", "qos", "retain")
    found = to_record_batch(find_borders(len(frames), batch, FOR_EVER), ORIGIN, columns)
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


@pytest.mark.parametrize("at", [BODY_AT - 4, BODY_AT - 2, BODY_AT + 3, BODY_AT + 7])
def test_damaged_lengths_are_an_error_and_never_read_elsewhere(at: int) -> None:
    frame = bytearray(frame_of(Message("t", b"abc", key="k"), 0, 0, 0, STORED_MS))
    frame[FRAME_HEAD_BYTES + at] ^= 0x7F
    with pytest.raises(InvalidMessage):
        find_borders(1, batch_of([bytes(frame)]), FOR_EVER)


@given(st.integers(0, 3), st.binary(max_size=300))
def test_any_bytes_give_rows_or_an_error(count: int, data: bytes) -> None:
    try:
        borders = find_borders(count, data, FOR_EVER)
    except InvalidMessage:
        return
    to_record_batch(borders, ORIGIN, ALL)


def test_the_schemas_name_the_columns_in_the_order_asked() -> None:
    assert arrow_schema(("offset", "value")).names == ["offset", "value"]
    assert arrow_schema(BASE).names[0] == "key"


def test_a_name_of_any_length_comes_out() -> None:
    names = ["t/" + "x" * size for size in (1, 65_500, 65_533, 2)]
    found = rows(*[Message("t", b"1", key="k", mqtt_topic=name) for name in names], columns=("key", "mqtt_topic"))
    assert found == [{"key": b"k", "mqtt_topic": name} for name in names]


def test_keys_of_bytes_come_out_as_they_were_sent() -> None:
    keys = ["text", b"\xff\x00", "", "a\x01b", b"text"]
    found = rows(*[Message("t", b"1", key=key) for key in keys], columns=("key",))
    assert [row["key"] for row in found] == [b"text", b"\xff\x00", None, b"a\x01b", b"text"]


def test_what_a_producer_compressed_comes_out_as_it_was() -> None:
    flag = COMPRESSED | LZ4
    frames = []
    for at, (body, its_flag) in enumerate([(compress(b"x" * 9999, flag), flag), (b"plain", 0), (b"bad", flag)]):
        frame = bytearray(frame_of(Message("telemetry", body), 3, at, 1000 * at, STORED_MS))
        flag_at = FRAME_HEAD_BYTES + SYSTEM_FLAG_AT
        frame[flag_at : flag_at + 4] = its_flag.to_bytes(4, "big")
        frames.append(bytes(frame))
    found = to_record_batch(find_borders(3, batch_of(frames), FOR_EVER), ORIGIN, ("value",)).to_pylist()
    assert [row["value"] for row in found] == [b"x" * 9999, b"plain", None]
