"""Protobuf payloads, by a descriptor set: ``protoc --include_imports --descriptor_set_out``.

A field with presence that is not set is null, any other has its default. Enums are their names, timestamps times. A
message type that contains itself is JSON text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.errors import InvalidConfig
from penstock.spark.decoders.ddl import TIME
from penstock.spark.decoders.fitting import Undecodable

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_UNSIGNED: Final = pa.decimal128(20, 0)
_Read = Callable[[Any], Any]
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(11, 19)
_SIMPLE: Final = {
    _DOUBLE: pa.float64(),
    _FLOAT: pa.float32(),
    _INT64: pa.int64(),
    _UINT64: _UNSIGNED,
    _INT32: pa.int32(),
    _FIXED64: _UNSIGNED,
    _FIXED32: pa.int64(),
    _BOOL: pa.bool_(),
    _STRING: pa.string(),
    _BYTES: pa.binary(),
    _UINT32: pa.int64(),
    _ENUM: pa.string(),
    _SFIXED32: pa.int32(),
    _SFIXED64: pa.int64(),
    _SINT32: pa.int32(),
    _SINT64: pa.int64(),
}


def make(schema: str, message: str) -> tuple[pa.DataType, Callable[[bytes], Any]]:
    """The type of a message's values, and the reader of one. ``schema``: a descriptor set in base64. Raises
    ``InvalidConfig`` if it is illegal or has no such message."""
    message_class = _class_of(schema, message)
    kind, read = _of_message(message_class.DESCRIPTOR, ())
    parse = message_class.FromString

    def value_of(payload: bytes) -> Any:
        try:
            return read(parse(payload))
        except Exception as error:
            raise Undecodable(f"no {message}: {error}") from None

    return kind, value_of


def _class_of(schema: str, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    if not message:
        raise InvalidConfig("protobuf needs the name of a message", hint='payloadMessage="plant.Reading"')
    found = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        found.ParseFromString(base64.b64decode(schema.removeprefix("base64:"), validate=True))
        known = {one.name for one in found.file}
        if timestamp_pb2.DESCRIPTOR.name not in known:
            pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        for one in found.file:
            pool.AddSerializedFile(one.SerializeToString())
    except Exception as error:
        hint = "`protoc --include_imports --descriptor_set_out=FILE` writes one"
        told = "it is no base64" if isinstance(error, binascii.Error) else str(error)
        raise InvalidConfig(f"no descriptor set: {told}", hint=hint) from None
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        names = sorted(f"{one.package}.{each.name}".lstrip(".") for one in found.file for each in one.message_type)
        raise InvalidConfig(f"the set has no message {message!r}", hint=f"it has {', '.join(names)[:200]}") from None


def _of_message(descriptor: Any, within: tuple[str, ...]) -> tuple[pa.DataType, _Read]:
    if descriptor.full_name == _TIMESTAMP:
        return TIME, lambda message: message.ToDatetime()
    if descriptor.full_name in within or not descriptor.fields:
        return pa.string(), _as_json
    within = (*within, descriptor.full_name)
    kinds: list[tuple[str, pa.DataType]] = []
    readers: list[tuple[str, bool, _Read | None]] = []
    for field in descriptor.fields:
        kind, read = _of_field(field, within)
        kinds.append((field.name, kind))
        readers.append((field.name, field.has_presence, read))

    def read_all(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, has_presence, read in readers:
            if not has_presence or message.HasField(name):
                value = getattr(message, name)
                found[name] = value if read is None else read(value)
        return found

    return pa.struct(kinds), read_all


def _of_field(field: Any, within: tuple[str, ...]) -> tuple[pa.DataType, _Read | None]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        kind, read = _of_one(value, within)
        to_text = _enum(key) if key.type == _ENUM else str
        return pa.map_(pa.string(), kind), lambda found: {
            to_text(name): one if read is None else read(one) for name, one in found.items()
        }
    kind, read = _of_one(field, within)
    if _is_repeated(field):
        return pa.list_(kind), list if read is None else lambda found: [read(one) for one in found]
    return kind, read


def _of_one(field: Any, within: tuple[str, ...]) -> tuple[pa.DataType, _Read | None]:
    if field.message_type is not None:
        return _of_message(field.message_type, within)
    return _SIMPLE[field.type], _enum(field) if field.type == _ENUM else None


def _enum(field: Any) -> _Read:
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)
    return bool(found) if found is not None else field.label == field.LABEL_REPEATED


def _as_json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))
