"""Protobuf payloads, compared with what Google's package writes."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import columns_of
from penstock.spark.decoders.formats import decoded, format_of, schema_text

pytest.importorskip("google.protobuf")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

OF = descriptor_pb2.FieldDescriptorProto
FIELDS = (
    ("device", OF.TYPE_STRING, "", False),
    ("value", OF.TYPE_DOUBLE, "", False),
    ("counts", OF.TYPE_UINT64, "", True),
    ("state", OF.TYPE_ENUM, ".plant.State", False),
    ("at", OF.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
    ("within", OF.TYPE_MESSAGE, ".plant.Reading", False),
    ("raw", OF.TYPE_BYTES, "", False),
    ("marks", OF.TYPE_MESSAGE, ".plant.Reading.MarksEntry", True),
)


def descriptor_set() -> bytes:
    """What protoc writes of this file."""
    file = descriptor_pb2.FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="ON", number=1)
    reading = file.message_type.add(name="Reading")
    entry = reading.nested_type.add(name="MarksEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=OF.TYPE_STRING, label=OF.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=OF.TYPE_SINT32, label=OF.LABEL_OPTIONAL)
    for number, (name, kind, of, is_repeated) in enumerate(FIELDS, 1):
        label = OF.LABEL_REPEATED if is_repeated else OF.LABEL_OPTIONAL
        field = reading.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)
        if name == "value":  # `optional double value`
            reading.oneof_decl.add(name="_value")
            field.proto3_optional, field.oneof_index = True, 0
    found = descriptor_pb2.FileDescriptorSet()
    found.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    found.file.append(file)
    return found.SerializeToString()


SET = descriptor_set()
TEXT = schema_text("protobuf", SET)


def made(**fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(SET).file:
        pool.AddSerializedFile(one.SerializeToString())
    reading = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))
    return reading(**fields).SerializeToString()  # type: ignore[no-any-return]


def read(*payloads: bytes) -> tuple[list[Any], list[Any]]:
    found = decoded(payloads, format_of("protobuf", TEXT, "plant.Reading"))
    return found.data.to_pylist(), found.error.to_pylist()


def test_a_message_becomes_columns() -> None:
    assert columns_of(format_of("protobuf", TEXT, "plant.Reading").kind) == (
        "device STRING, value DOUBLE, counts ARRAY<DECIMAL(20, 0)>, state STRING, at TIMESTAMP, within STRING, "
        "raw BINARY, marks MAP<STRING, INT>"
    )


@settings(max_examples=30)
@given(st.text(max_size=4), st.none() | st.floats(allow_nan=False), st.lists(st.integers(0, 2**64 - 1), max_size=3))
def test_what_googles_package_wrote_is_read(device: str, value: float | None, counts: list[int]) -> None:
    at = datetime(2026, 11, 28, 12, tzinfo=UTC)
    fields: dict[str, Any] = {"device": device, "counts": counts, "state": 1, "raw": b"x", "marks": {"a": -1}}
    (data,), errors = read(made(**fields, **({} if value is None else {"value": value}), at=at, within={"device": "d"}))
    assert errors == [None]
    within = data.pop("within")
    assert data == fields | {"value": value, "state": "ON", "at": at, "marks": [("a", -1)]}
    assert within == '{"device": "d"}'


def test_what_is_not_set_is_null_where_that_can_be_told() -> None:
    (data,), _ = read(b"")
    assert (data["device"], data["value"], data["at"], data["within"], data["state"]) == ("", None, None, None, "OFF")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), min_size=1, max_size=4), st.binary(max_size=20))
def test_bytes_that_were_changed_give_one_row_each(changes: list[tuple[int, int]], noise: bytes) -> None:
    whole = made(device="d7", value=21.5, counts=[1, 2], marks={"a": 3})
    changed = bytearray(whole)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    data, errors = read(bytes(changed), noise, whole)
    assert [one is None for one in data] == [one is not None for one in errors]
    assert data[2]["device"] == "d7"


def test_a_descriptor_set_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "plant.desc").write_bytes(SET)
    assert schema_text("protobuf", str(tmp_path / "plant.desc")) == TEXT == schema_text("protobuf", TEXT)
    with pytest.raises(InvalidConfig, match="no descriptor set can be read at"):
        schema_text("protobuf", str(tmp_path / "none"))
    with pytest.raises(InvalidConfig, match="its path, or its bytes"):
        schema_text("protobuf", "")


@pytest.mark.parametrize(
    ("schema", "message", "said"),
    [
        (TEXT, "", "needs the name of a message"),
        (TEXT, "plant.Missing", r"no message 'plant.Missing' \(it has google.protobuf.Timestamp, plant.Reading\)"),
        ("base64:" + base64.b64encode(b"\xff\xff").decode(), "M", "no descriptor set"),
        ("base64:?", "M", "no descriptor set: it is no base64"),
    ],
)
def test_what_is_no_descriptor_set_is_told(schema: str, message: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        format_of("protobuf", schema, message)
