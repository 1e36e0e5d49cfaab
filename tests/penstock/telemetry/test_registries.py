"""Objects as a table, and registries that are none. The join is in tests/spark/test_jobs_in_spark.py."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry import registries


class Tables:
    """Takes a table as Spark would."""

    def createDataFrame(self, table: Any) -> Any:
        return table


def test_objects_become_rows_whose_columns_have_one_type() -> None:
    rows = [
        {"mqtt_topic": "registry/d1", "value": b'{"site": "Kiel", "floor": 1, "limit": 2, "odd": 7, "parts": [1]}'},
        {"mqtt_topic": "registry/x", "value": b'{"device": "d2", "floor": null, "limit": 2.5, "odd": "x"}'},
        {"mqtt_topic": "registry/d3", "value": b""},
        {"mqtt_topic": "registry/d4", "value": b"{no"},
        {"mqtt_topic": "registry", "value": b"{}"},
    ]
    spark: Any = Tables()
    found: Any = registries.table(rows, spark)
    assert found.to_pylist() == [
        {"device": "d1", "site": "Kiel", "floor": 1, "limit": 2.0, "odd": "7", "parts": "[1]"},
        {"device": "d2", "site": None, "floor": None, "limit": 2.5, "odd": "x", "parts": None},
        {"device": "", "site": None, "floor": None, "limit": None, "odd": None, "parts": None},
    ]
    empty: Any = registries.table([], spark)
    assert empty.column_names == ["device"]


@pytest.mark.parametrize("text", ["", "topic:", "jdbc:"])
def test_a_text_that_names_no_registry_is_refused(text: str) -> None:
    spark: Any = Tables()
    with pytest.raises(InvalidConfig, match=r"no registry of devices.*topic:NAME"):
        registries.registry(text, spark, "h:1")
