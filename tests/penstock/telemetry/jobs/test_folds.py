"""Folds as such: order, keys without readings, and what is found."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from penstock.telemetry.jobs.folds import Fold, findings, folded

JOINED = Fold(
    "struct<text: string, found: array<struct<value: double>>>",
    "named_struct('text', '', 'found', array())",
    lambda had, one: f.struct(
        f.concat(had["text"], one["value"].cast("int").cast("string")).alias("text"),
        f.concat(had["found"], f.array(f.struct(one["value"].alias("value")))).alias("found"),
    ),
    ("device",),
)


def test_readings_are_taken_in_the_order_of_their_time_then_of_the_log(spark: Any, frame: Any, made: Any) -> None:
    some = [row for row in made(3) if not row["error"]][:2]
    early, late = sorted(row["event_time"] for row in some)
    times = [(late, 0, 0, 3), (early, 0, 9, 1), (late, 1, 0, 5), (early, 1, 0, 2), (late, 0, 1, 4)]
    rows = [
        some[0] | {"device": "d", "event_time": at, "queue": queue, "offset": offset, "value": float(value)}
        for at, queue, offset, value in times
    ]
    first = folded(frame(rows), None, JOINED)
    assert [(row.device, row.state.text) for row in first.collect()] == [("d", "12345")]
    again = folded(frame([rows[0] | {"device": "e"}]), spark.createDataFrame(first.collect(), first.schema), JOINED)
    assert {(row.device, row.state.text) for row in again.collect()} == {("d", "12345"), ("e", "3")}
    assert [tuple(row) for row in findings(again, ("device",)).collect()] == [("e", 3.0)]
