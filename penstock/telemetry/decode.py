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
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

COLUMNS_NEEDED: Final = ("value", "topic", "queue", "offset", "timestamp", "mqtt_topic")
"""The columns of messages out of which readings are made."""

_TIME: Final = pa.timestamp("us", tz="UTC")
READING_ARROW: Final = pa.schema(
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
SECONDS_MAX: Final = 100_000_000_000
"""Times that are numbers below are seconds since 1970, others milliseconds."""
MILLISECONDS_MAX: Final = 10**15
PAYLOAD_KEPT_MAX: Final = 64 * 1024
"""Number of bytes that a row keeps of a payload that could not be decoded."""


class _Refused(ValueError):
    """Why a payload is no reading."""


class Reading(NamedTuple):
    """One measured value."""

    device: str
    metric: str
    event_ms: int
    value: float


class _Rows:
    """Rows under way, column by column; ``at`` is the place of each row's message in its batch."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.device: list[str] = []
        self.metric: list[str] = []
        self.event_ms: list[int] = []
        self.value: list[float | None] = []
        self.refused: dict[int, tuple[str, bytes]] = {}  # by row: why, and what was sent

    def add(self, at: int, one: Reading) -> None:
        self.at.append(at)
        self.device.append(one.device)
        self.metric.append(one.metric)
        self.event_ms.append(one.event_ms)
        self.value.append(one.value)

    def refuse(self, at: int, name: str, stored_ms: int, why: str, payload: bytes) -> None:
        device, metric = _levels(name)
        self.refused[len(self.at)] = (why, payload[:PAYLOAD_KEPT_MAX])
        self.at.append(at)
        self.device.append(device)
        self.metric.append(metric)
        self.event_ms.append(stored_ms)
        self.value.append(None)

    def sparse(self, part: int, kind: Any) -> pa.Array:
        """A column of the refused rows only."""
        count = len(self.at)
        if not self.refused:
            return pa.nulls(count, kind)
        return pa.array([self.refused[row][part] if row in self.refused else None for row in range(count)], kind)


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Readings of one Arrow batch with ``COLUMNS_NEEDED``; order is kept."""
    payloads, names = batch.column("value").to_pylist(), batch.column("mqtt_topic").to_pylist()
    stored = (batch.column("timestamp").cast(_TIME).view(pa.int64()).to_numpy() // 1000).tolist()
    rows = _Rows()
    for at, (payload, name, stored_ms) in enumerate(zip(payloads, names, stored, strict=True)):
        try:
            for one in payload_readings(name, payload, stored_ms):
                rows.add(at, one)
        except _Refused as error:
            rows.refuse(at, name, stored_ms, str(error), payload)
    places = pa.array(rows.at, pa.int64())
    arrays = [
        pa.array(rows.device, pa.string()),
        pa.array(rows.metric, pa.string()),
        pa.array(np.array(rows.event_ms, np.int64) * 1000).view(_TIME),
        pa.array(rows.value, pa.float64()),
        rows.sparse(0, pa.string()),
        rows.sparse(1, pa.binary()),
        *[batch.column(name).take(places) for name in ("topic", "queue", "offset")],
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=READING_ARROW)


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


@lru_cache(maxsize=16_384)
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
            time = said[field]
            event_ms = time if type(time) is int and time >= SECONDS_MAX else _milliseconds(time)
            return event_ms if event_ms <= stored_ms + AHEAD_MS_MAX else stored_ms
    return stored_ms


def _milliseconds(time: object) -> int:
    number = _moment_ms(time) if type(time) is str else _number(time)
    if number < 0:
        raise _Refused("a time before 1970")
    if type(time) is not str and number < SECONDS_MAX:
        number *= 1000
    return int(min(number, MILLISECONDS_MAX))


def _moment_ms(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _Refused(f"no time: {text[:40]!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
