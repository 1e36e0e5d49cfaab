"""The one Spark session of tests/spark and its cluster, for the tests of the benchmark of Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SPARK_TESTS = Path(__file__).parents[2] / "spark" / "conftest.py"
_spec = importlib.util.spec_from_file_location("penstock_spark_tests_of_bench", SPARK_TESTS)
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)

collect_ignore_glob = [] if _shared.INSTALLED else ["test_*.py"]
spark = _shared.spark
cluster = _shared.cluster
