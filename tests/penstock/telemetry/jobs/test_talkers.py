"""Top talkers beside a counter per minute."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from penstock.telemetry.jobs.talkers import COLUMNS, talkers

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_busiest_devices_of_each_window_in_order(spark: Any) -> None:
    rows = []
    for seed in range(5):
        rng = Random(seed)
        for _ in range(400):
            device = f"d{rng.randrange(8)}"
            at = START + timedelta(hours=seed, seconds=rng.randrange(180))
            client = rng.choice((device, "", None))
            rows.append((at, f"telemetry/{device}/temp", client, b"x" * rng.randrange(9)))
    counts: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for at, name, _, value in rows:
        one = counts[int(at.timestamp()) // 60][name.split("/")[1]]
        one[0] += 1
        one[1] += len(value)
    schema = "timestamp TIMESTAMP, mqtt_topic STRING, client_id STRING, value BINARY"
    found = talkers(spark.createDataFrame(rows, schema), top=3).toArrow()
    assert tuple(found.column_names) == COLUMNS
    expected = []
    for minute, its in counts.items():
        total = sum(one[0] for one in its.values())
        best = sorted(its.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))[:3]
        expected += [(minute, at, device, *one, one[0] / total) for at, (device, one) in enumerate(best, 1)]
    seen = [(int(row["window_start"].timestamp()) // 60, *list(row.values())[2:]) for row in found.to_pylist()]
    assert sorted(seen) == sorted(expected)
