"""What rows are made of messages."""

from __future__ import annotations

from typing import Any

import pytest
from stored_queues import rows_of

from penstock.errors import InvalidConfig
from penstock.protocol.message import Message
from penstock.spark.columns import BASE
from penstock.spark.options import SourceOptions, parse
from penstock.spark.payloads import columns_needed, schema_of
from penstock.spark.source import PenstockSource


def read(queues: Any, **options: str) -> list[dict[str, Any]]:
    source = PenstockSource({"servers": queues.address, "subscribe": "t", **options})
    reader = source.reader(source.schema())
    return rows_of(batch for partition in reader.partitions() for batch in reader.read(partition))


def test_rows_are_what_payloads_say_beside_the_columns_of_their_messages(queues: Any) -> None:
    queues.put("t", 0, [Message("t", b'{"temp": 21.5}'), Message("t", b"null")])
    first, second = read(queues, payload="json", payloadSchema="temp DOUBLE", columns="offset,value")
    assert first == {"offset": 0, "data": {"temp": 21.5}, "error": None, "payload": None}
    assert second == {"offset": 1, "data": None, "error": "the payload is null", "payload": b"null"}
    assert list(read(queues, payload="json", payloadSchema="temp DOUBLE")[0]) == [
        *[name for name in BASE if name != "value"],
        "data",
        "error",
        "payload",
    ]


def test_messages_and_readings_need_no_schema() -> None:
    assert schema_of(BASE, "raw").names == list(BASE)
    assert schema_of(BASE, "readings").names[0] == "device"
    assert columns_needed(SourceOptions(columns=("key",))) == ("key",)
    assert columns_needed(SourceOptions(columns=("key",), payload="cbor", payload_schema="a INT")) == ("key", "value")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload": "jason"}, "payload is raw or readings or json"),
        ({"payload": "json"}, "these payloads need a schema"),
        ({"payload": "json", "payloadSchema": " "}, "payloadSchema is empty"),
        ({"payload": "json", "payloadSchema": "a colour"}, "there is no type 'colour'"),
        ({"payloadSchema": "a INT"}, "need a payload"),
    ],
)
def test_what_is_missing_or_wrong_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse({"subscribe": "t"} | given, stream=False)
    assert said in str(raised.value)
