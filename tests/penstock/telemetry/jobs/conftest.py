"""The one Spark session of tests/spark; the marks and warnings of that folder; readings made from a seed."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

SPARK_TESTS = Path(__file__).parents[3] / "spark" / "conftest.py"
_spec = importlib.util.spec_from_file_location("penstock_spark_tests", SPARK_TESTS)
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)

collect_ignore_glob = [] if _shared.INSTALLED else ["test_*.py"]
spark = _shared.spark

START = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)  # a midnight lies among the readings
Reading = dict[str, Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _shared.mark(items, Path(__file__).parent)


@pytest.fixture(scope="session")
def made() -> Callable[..., list[Reading]]:
    """``made(*seeds)``: readings of six devices per seed, in any order, some late or refused."""
    return lambda *seeds: [row for seed in seeds for row in made_of(seed)]


def made_of(seed: int) -> list[Reading]:
    """The readings of one seed."""
    rng = random.Random(seed)
    rows: list[Reading] = []
    for number in range(6):
        at, usual_s = START + timedelta(seconds=rng.randrange(60)), rng.choice((2, 7, 15))
        for _ in range(rng.randrange(20, 80)):
            at += timedelta(seconds=usual_s * rng.choice((1, 1, 1, 1, 1.5, 0.5, 20)))
            row = {
                "device": f"s{seed}d{number}",
                "metric": rng.choice(("temp", "hum")),
                "event_time": at - timedelta(seconds=rng.choice((0, 0, 0, 0, 3 * usual_s))),
                "value": round(rng.gauss(20 + number, 2) * rng.choice((1,) * 15 + (9,)), 3),
                "error": None,
            }
            rows += [row, row | {"value": None, "error": "no JSON"}][: 1 + (rng.random() < 0.05)]
    rng.shuffle(rows)
    return [row | {"topic": "telemetry", "queue": at % 3, "offset": at // 3} for at, row in enumerate(rows)]


@pytest.fixture(scope="session")
def frame(spark: Any) -> Callable[[list[Reading]], Any]:
    """``frame(rows)``: the rows as a DataFrame."""
    schema = (
        "device STRING, metric STRING, event_time TIMESTAMP, value DOUBLE, error STRING, topic STRING, queue INT,"
        " offset BIGINT"
    )
    return lambda rows: spark.createDataFrame(rows, schema)
