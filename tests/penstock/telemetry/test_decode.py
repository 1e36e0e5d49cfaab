from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry.decode import AHEAD_MS_MAX, Reading, decode_batch, payload_readings

STORED_MS = 1_700_000_000_000
NAME = "telemetry/dev-1/temp"


def batch(*payloads: bytes, names: str = NAME) -> pa.RecordBatch:
    count = len(payloads)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(payloads, pa.binary()),
            "topic": pa.array(["telemetry"] * count),
            "queue": pa.array([2] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([STORED_MS * 1000] * count, pa.int64()).view(pa.timestamp("us", tz="UTC")),
            "mqtt_topic": pa.array([names] * count),
        }
    )


def rows(*payloads: bytes, names: str = NAME) -> list[dict[str, Any]]:
    return decode_batch(batch(*payloads, names=names)).to_pylist()


def test_a_number_is_a_reading_of_the_device_and_metric_in_its_topic() -> None:
    assert payload_readings(NAME, b"21.5", STORED_MS) == [Reading("dev-1", "temp", STORED_MS, 21.5)]


def test_levels_after_the_device_are_the_metric() -> None:
    (one,) = payload_readings("telemetry/dev-1/room/temp", b"1", STORED_MS)
    assert (one.device, one.metric) == ("dev-1", "room/temp")


def test_fields_of_the_object_win_over_the_topic() -> None:
    said = b'{"device":"d9","metric":"rpm","value":7,"time":1699999999000}'
    assert payload_readings(NAME, said, STORED_MS) == [Reading("d9", "rpm", 1_699_999_999_000, 7.0)]


def test_an_object_of_numbers_is_one_reading_each() -> None:
    said = b'{"temp":21,"ok":true,"unit":"C","hum":0.4,"time":1699999999000,"deep":{"x":1}}'
    found = payload_readings("telemetry/dev-1", said, STORED_MS)
    assert [(one.device, one.metric, one.value) for one in found] == [("dev-1", "temp", 21.0), ("dev-1", "hum", 0.4)]
    assert {one.event_ms for one in found} == {1_699_999_999_000}


@pytest.mark.parametrize(
    ("time", "event_ms"),
    [
        ("1699999999", 1_699_999_999_000),
        ("1699999999.25", 1_699_999_999_250),
        ("1699999999250", 1_699_999_999_250),
        ('"2023-11-14T22:13:19Z"', 1_699_999_999_000),
        ('"2023-11-14T23:13:19+01:00"', 1_699_999_999_000),
        ('"2023-11-14T22:13:19"', 1_699_999_999_000),
    ],
)
def test_event_time_is_read_in_seconds_milliseconds_or_iso(time: str, event_ms: int) -> None:
    (one,) = payload_readings(NAME, b'{"value":1,"ts":%s}' % time.encode(), STORED_MS)
    assert one.event_ms == event_ms


def test_a_clock_that_is_far_ahead_is_not_believed() -> None:
    def event_ms(ahead_ms: int) -> int:
        said = json.dumps({"value": 1, "time": STORED_MS + ahead_ms}).encode()
        return payload_readings(NAME, said, STORED_MS)[0].event_ms

    assert event_ms(AHEAD_MS_MAX) == STORED_MS + AHEAD_MS_MAX
    assert event_ms(AHEAD_MS_MAX + 1) == STORED_MS
    assert event_ms(10**17) == STORED_MS


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"true",
        b'"21.5"',
        b"[1]",
        b"{}",
        b'{"value":1}{"value":2}',
        b'{"value":null}',
        b'{"value":true}',
        b'{"value":"1"}',
        b'{"value":1e999}',
        b'{"value":NaN}',
        b'{"value":1,"time":"yesterday"}',
        b'{"value":1,"time":-5}',
        b'{"value":1,"time":"0001-01-01T00:00:00"}',
        b'{"value":1,"time":null}',
        b'{"value":1,"device":7}',
        b'{"value":1,"device":""}',
        b'{"value":1,"device":"\\ud800"}',
        b'{"unit":"C"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 400,
    ],
    ids=lambda payload: payload[:30].decode("latin-1"),
)
def test_what_is_no_reading_is_one_row_with_its_error_and_its_payload(payload: bytes) -> None:
    good = b'{"value":3}'
    before, bad, after = rows(good, payload, good)
    assert bad["error"]
    assert bad["payload"] == payload[: 64 * 1024]
    assert (bad["value"], bad["device"], bad["metric"], bad["offset"]) == (None, "dev-1", "temp", 1)
    assert bad["event_time"] == datetime.fromtimestamp(STORED_MS / 1000, UTC)
    assert (before["value"], before["error"], before["payload"]) == (3.0, None, None)
    assert (after["value"], after["offset"]) == (3.0, 2)


def test_a_number_whose_topic_names_no_metric_is_refused() -> None:
    (row,) = rows(b"21.5", names="telemetry")
    assert "device" in row["error"]
    (row,) = rows(b"21.5", names="telemetry/dev-1")
    assert "metric" in row["error"]


def test_rows_keep_the_place_of_their_message() -> None:
    found = rows(b'{"a":1,"b":2}', b"3")
    assert [(row["topic"], row["queue"], row["offset"]) for row in found] == [("telemetry", 2, at) for at in (0, 0, 1)]


def test_no_message_gives_no_row() -> None:
    assert rows() == []


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_give_rows(payloads: list[bytes]) -> None:
    found = rows(*payloads)
    assert {row["offset"] for row in found} == set(range(len(payloads)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "time", "device", "x"]), inner)
    ),
    max_leaves=6,
)


@given(_JSON)
def test_any_json_gives_rows_with_a_value_or_an_error(said: Any) -> None:
    for row in rows(json.dumps(said).encode()):
        assert (row["value"] is None) == (row["error"] is not None)
