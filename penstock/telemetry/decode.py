"""Readings out of payloads: which device measured what, when.

Pure: Arrow in, Arrow out; the source's option ``payload=readings`` puts it behind each pull, which spares Spark a
second way through Python. A payload is JSON: a number, an object with a ``value``, or an object of
numbers, each a metric by its name. Device and metric come from the object, else from the MQTT topic name
``telemetry/<device>/<metric>``. Whatever a device sends gives rows: a payload that is no reading becomes one row with
``error`` set and the payload kept, so that one bad device never ends a stream.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

COLUMNS_NEEDED: Final = ("value", "topic", "queue", "offset", "timestamp", "mqtt_topic")
"""The columns of messages out of which readings are made."""

READING_SCHEMA: Final = (
    "device STRING, metric STRING, event_time TIMESTAMP, value DOUBLE, "
    "error STRING, payload BINARY, topic STRING, queue INT, offset BIGINT"
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_ARROW: Final = pa.schema(
    [
        ("device", pa.string()),
        ("metric", pa.string()),
        ("event_time", _TIME),
        ("value", pa.float64()),
        ("error", pa.string()),
        ("payload", pa.binary()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
    ]
)

TIME_FIELDS: Final = ("time", "timestamp", "ts")
AHEAD_MS_MAX: Final = 60_000
"""A device's clock may be this much ahead of the store time. One that is further ahead is not believed: its reading
gets the store time, for a single far one would push the watermark so that everybody else's readings are late."""

_NAMED_FIELDS: Final = frozenset({"device", "metric", "value", *TIME_FIELDS})
_SECONDS_MAX: Final = 100_000_000_000  # numbers below are seconds since 1970, others milliseconds
_MILLISECONDS_MAX: Final = 10**15
_PAYLOAD_KEPT_MAX: Final = 64 * 1024


class _Refused(ValueError):
    """Why a payload is no reading."""


class Reading(NamedTuple):
    """One measured value."""

    device: str
    metric: str
    event_ms: int
    value: float


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Readings of one Arrow batch with ``COLUMNS_NEEDED``; order is kept."""
    columns = {name: batch.column(name).to_pylist() for name in ("value", "topic", "queue", "offset", "mqtt_topic")}
    stored = batch.column("timestamp").cast(_TIME).view(pa.int64()).to_pylist()
    rows: list[tuple[Any, ...]] = []
    places = zip(columns["topic"], columns["queue"], columns["offset"], strict=True)
    for payload, name, stored_us, place in zip(columns["value"], columns["mqtt_topic"], stored, places, strict=True):
        stored_ms = stored_us // 1000
        try:
            found = payload_readings(name, payload, stored_ms)
        except _Refused as error:
            device, metric = _levels(name)
            rows.append((device, metric, stored_ms * 1000, None, str(error), payload[:_PAYLOAD_KEPT_MAX], *place))
            continue
        for one in found:
            rows.append((one.device, one.metric, one.event_ms * 1000, one.value, None, None, *place))
    arrays = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    return pa.RecordBatch.from_arrays(
        [_array(values, field.type) for values, field in zip(arrays, _ARROW, strict=True)], schema=_ARROW
    )


def _array(values: Any, kind: Any) -> pa.Array:
    return pa.array(values, pa.int64()).view(_TIME) if kind == _TIME else pa.array(values, kind)


def payload_readings(name: str, payload: bytes, stored_ms: int) -> list[Reading]:
    """Readings of one payload.

    Args:
        name: MQTT topic name, ``telemetry/<device>/<metric>``.
        payload: what the device sent.
        stored_ms: store time, the event time of a payload that names none.

    Raises:
        ValueError: it is no reading; says why.
    """
    try:
        said = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise _Refused(f"no JSON: {error}"[:200]) from None
    device, metric = _levels(name)
    if type(said) is not dict:
        return [Reading(_named(device, "device"), _named(metric, "metric"), stored_ms, _number(said))]
    device = _named(said.get("device", device), "device")
    event_ms = _event_ms(said, stored_ms)
    if "value" in said:
        return [Reading(device, _named(said.get("metric", metric), "metric"), event_ms, _number(said["value"]))]
    found = [
        Reading(device, field, event_ms, _number(value))
        for field, value in said.items()
        if field not in _NAMED_FIELDS and type(value) in (int, float)
    ]
    if not found:
        raise _Refused("an object without a value or any other number")
    return found


def _levels(name: str) -> tuple[str, str]:
    """Device and metric of ``telemetry/<device>/<metric>``; further levels belong to the metric."""
    levels = [*name.split("/", 2), "", ""]
    return levels[1], levels[2]


def _named(name: object, what: str) -> str:
    if type(name) is not str or not name:
        raise _Refused(f"it names no {what}, and neither does its topic")
    return name


def _number(value: object) -> float:
    if type(value) not in (int, float):
        raise _Refused(f"a value is a number, not {'null' if value is None else type(value).__name__}")
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise _Refused("the value is not finite")
    return number


def _event_ms(said: dict[str, Any], stored_ms: int) -> int:
    for field in TIME_FIELDS:
        if field in said:
            event_ms = _milliseconds(said[field])
            return event_ms if event_ms <= stored_ms + AHEAD_MS_MAX else stored_ms
    return stored_ms


def _milliseconds(time: object) -> int:
    number = _moment_ms(time) if type(time) is str else _number(time)
    if number < 0:
        raise _Refused("a time before 1970")
    if type(time) is not str and number < _SECONDS_MAX:
        number *= 1000
    return int(min(number, _MILLISECONDS_MAX))


def _moment_ms(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _Refused(f"no time: {text[:40]!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
