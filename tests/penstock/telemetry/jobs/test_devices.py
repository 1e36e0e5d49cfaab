"""The join with a registry beside a dictionary."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry.jobs.devices import with_devices


def test_readings_get_what_the_registry_knows_and_none_is_doubled(spark: Any, frame: Any, made: Any) -> None:
    rows = made(1)
    known = [
        ("s1d0", "Kiel", 1, "a"),
        ("s1d1", "Bonn", 2, "b"),
        ("s1d1", "Ahlen", 9, "c"),
        ("d9", "Ulm", 3, "d"),
        (None, "x", 1, "e"),
    ]
    registry = spark.createDataFrame(known, "device STRING, site STRING, floor INT, value STRING")
    joined = with_devices(frame(rows), registry)
    assert joined.columns[-4:] == ["known", "site", "floor", "device_value"]
    facts = {"s1d0": (True, "Kiel", 1, "a"), "s1d1": (True, "Bonn", 2, "b")}
    expected = {(row["queue"], row["offset"]): facts.get(row["device"], (False, None, None, None)) for row in rows}
    found = joined.toArrow().to_pylist()
    assert len(found) == len(rows)
    assert {(row["queue"], row["offset"]): tuple(list(row.values())[-4:]) for row in found} == expected


def test_a_registry_without_devices_is_refused(spark: Any, frame: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"no column 'device'.*it has name"):
        with_devices(frame([]), spark.createDataFrame([("x",)], "name STRING"))
