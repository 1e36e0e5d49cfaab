"""Sparkplug B payloads: births, data, commands and deaths of edge nodes and their devices, each with its metrics.

A message may name its metrics by alias alone, and leave their types out: its node's or device's birth tells these
(``metrics.py``). Until then a whole number without a type is taken as unsigned, as it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

from penstock.spark.decoders.ddl import parse
from penstock.spark.decoders.fitting import Undecodable

NAMESPACE: Final = "spBv1.0"
KIND: Final[pa.DataType] = parse(
    "type STRING, group STRING, node STRING, device STRING, seq INT, timestamp TIMESTAMP, metrics ARRAY<STRUCT<"
    "name STRING, alias BIGINT, datatype STRING, timestamp TIMESTAMP, value DOUBLE, text STRING, bytes BINARY, "
    "is_null BOOLEAN, is_historical BOOLEAN, is_transient BOOLEAN>>"
)
_OF_NODES: Final = ("NBIRTH", "NDATA", "NCMD", "NDEATH")
_OF_DEVICES: Final = ("DBIRTH", "DDATA", "DCMD", "DDEATH")
_STATE: Final = "STATE"
_DATATYPES: Final = (
    "Unknown Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float Double Boolean String DateTime Text UUID DataSet "
    "Bytes File Template PropertySet PropertySetList Int8Array Int16Array Int32Array Int64Array UInt8Array UInt16Array "
    "UInt32Array UInt64Array FloatArray DoubleArray BooleanArray StringArray DateTimeArray"
)
DATATYPES: Final = tuple(_DATATYPES.split(" "))
_MILLISECONDS_END: Final = 10**14
_SIGNED: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_AS_BYTES: Final = ("dataset_value", "template_value", "extension_value")


class Name(NamedTuple):
    """The parts of a message's MQTT name."""

    type: str
    group: str
    node: str
    device: str | None


def name_of(mqtt_topic: str) -> Name:
    """The parts of a name. Raises ``Undecodable`` for one that is not Sparkplug's."""
    match mqtt_topic.split("/"):
        case [space, state, host] if space == NAMESPACE and state == _STATE:
            return Name(_STATE, "", host, None)
        case [space, group, kind, node] if space == NAMESPACE and kind in _OF_NODES:
            return Name(kind, group, node, None)
        case [space, group, kind, node, device] if space == NAMESPACE and kind in _OF_DEVICES:
            return Name(kind, group, node, device)
    raise Undecodable(f"{mqtt_topic[:100]!r} is no name of Sparkplug B, as in {NAMESPACE}/group/NDATA/node")


def value_of(payload: bytes, mqtt_topic: str) -> dict[str, Any]:
    """The value of a message. Raises ``Undecodable``."""
    name = name_of(mqtt_topic)
    said: dict[str, Any] = {"type": name.type, "group": name.group, "node": name.node, "device": name.device}
    if name.type == _STATE:
        return said | _of_state(payload)
    try:
        found = _payload()(payload)
    except Exception as error:
        raise Undecodable(f"no Sparkplug B: {error}") from None
    said["seq"] = found.seq if found.HasField("seq") else None
    said["timestamp"] = _time(found.timestamp) if found.HasField("timestamp") else None
    said["metrics"] = [_metric(one) for one in found.metrics]
    return said


def _of_state(payload: bytes) -> dict[str, Any]:
    """A host application's state: JSON, or in old versions a word."""
    try:
        said = orjson.loads(payload)
    except orjson.JSONDecodeError:
        said = {"online": {b"ONLINE": True, b"OFFLINE": False}.get(payload)}
    if not isinstance(said, dict) or not isinstance(said.get("online"), bool):
        raise Undecodable("a state says whether its host is online")
    online = said["online"]
    metric = {"name": "online", "datatype": "Boolean", "value": float(online), "text": str(online).lower()}
    timestamp = said.get("timestamp")
    return {"timestamp": _time(timestamp) if isinstance(timestamp, int) else None, "metrics": [metric]}


def _metric(metric: Any) -> dict[str, Any]:
    datatype = DATATYPES[metric.datatype] if 0 < metric.datatype < len(DATATYPES) else None
    found: dict[str, Any] = {
        "name": metric.name if metric.HasField("name") else None,
        "alias": metric.alias if metric.HasField("alias") else None,
        "datatype": datatype,
        "timestamp": _time(metric.timestamp) if metric.HasField("timestamp") else None,
        "is_null": metric.is_null,
        "is_historical": metric.is_historical,
        "is_transient": metric.is_transient,
    }
    which = metric.WhichOneof("value")
    if which is None or metric.is_null:
        return found
    value = getattr(metric, which)
    if which in ("int_value", "long_value"):
        whole = signed(value, datatype)
        found |= {"value": float(whole), "text": str(whole)}
    elif which == "boolean_value":
        found |= {"value": float(value), "text": str(value).lower()}
    elif which == "string_value":
        found["text"] = value
    elif which == "bytes_value":
        found["bytes"] = value
    elif which in _AS_BYTES:
        found["bytes"] = value.SerializeToString()
    else:
        found["value"] = float(value)
    return found


def signed(value: int, datatype: str | None) -> int:
    """A whole number as its type means it: negative ones are sent as their two's complement."""
    bits = _SIGNED.get(datatype or "")
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _time(milliseconds: int) -> float:
    """Milliseconds as seconds, which no reader takes for anything else."""
    if not 0 <= milliseconds < _MILLISECONDS_END:
        raise Undecodable(f"{milliseconds} ms is no time")
    return milliseconds / 1000


@lru_cache(maxsize=1)
def _payload() -> Callable[[bytes], Any]:
    """The parser of Sparkplug's message; its fields and their numbers are those of the specification."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="penstock/sparkplug_b.proto", package="penstock.sparkplug", syntax="proto2"
    )
    kinds = {"u4": of.TYPE_UINT32, "u8": of.TYPE_UINT64, "s": of.TYPE_STRING, "y": of.TYPE_BYTES, "?": of.TYPE_BOOL}
    kinds |= {"f": of.TYPE_FLOAT, "d": of.TYPE_DOUBLE}
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "Metric":
            message.oneof_decl.add(name="value")
        for number, field, kind in fields:
            label = of.LABEL_REPEATED if kind.startswith("*") else of.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if kind.lstrip("*") in kinds:
                made.type = kinds[kind]
            else:
                made.type, made.type_name = of.TYPE_MESSAGE, f".{file.package}.{kind.lstrip('*')}"
            if field.endswith("_value"):
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Payload"))
    read: Callable[[bytes], Any] = found.FromString
    return read


_MESSAGES: Final = {
    "Payload": (
        (1, "timestamp", "u8"),
        (2, "metrics", "*Metric"),
        (3, "seq", "u8"),
        (4, "uuid", "s"),
        (5, "body", "y"),
    ),
    "Metric": (
        (1, "name", "s"),
        (2, "alias", "u8"),
        (3, "timestamp", "u8"),
        (4, "datatype", "u4"),
        (5, "is_historical", "?"),
        (6, "is_transient", "?"),
        (7, "is_null", "?"),
        (10, "int_value", "u4"),
        (11, "long_value", "u8"),
        (12, "float_value", "f"),
        (13, "double_value", "d"),
        (14, "boolean_value", "?"),
        (15, "string_value", "s"),
        (16, "bytes_value", "y"),
        (17, "dataset_value", "Opaque"),
        (18, "template_value", "Opaque"),
        (19, "extension_value", "Opaque"),
    ),
    "Opaque": (),
}
