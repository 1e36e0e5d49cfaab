"""Which output a text names. What is written is in tests/spark: test_jobs_in_spark.py and test_outputs_in_spark.py."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry import outputs


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("/data", outputs.ParquetFolder),
        ("s3a://bucket/data", outputs.ParquetFolder),
        ("jdbc:postgresql://h/db?user=me#site.gaps", outputs.JdbcTable),
        ("delta:/data/gaps", outputs.DeltaTable),
        ("iceberg:lake.site.gaps", outputs.IcebergTable),
        ("topic:found", outputs.Messages),
        ("mqtt:alerts/{device}", outputs.Messages),
    ],
)
def test_a_text_names_an_output(text: str, kind: type) -> None:
    assert type(outputs.output_of(text, "gaps", ("device",), "h:1")) is kind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jdbc:postgresql://h/db#x; drop", "no name of a table"),
        ("topic:", "names no place"),
        ("mqtt:{device}/x", "the first level is the broker's topic"),
    ],
)
def test_a_text_that_names_none_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        outputs.output_of(text, "gaps", ("device",), "h:1")
