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


def test_jars_for_another_spark_are_refused_by_their_packages_name() -> None:
    delta, iceberg = "io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    for package in (delta, "io.delta:delta-spark_2.13:4.0.0", "org.postgresql:postgresql:42.7.4"):
        outputs.check_package(package, "4.2.1")
    outputs.check_package(iceberg, "")
    with pytest.raises(InvalidConfig, match=r"delta-spark.* is for Spark 4\.2, and pyspark 4\.3\.0 is") as raised:
        outputs.check_package(delta, "4.3.0")
    assert raised.value.hint == "give the package for Spark 4.3, or `pip install 'pyspark==4.2.*'`"
    with pytest.raises(InvalidConfig, match=r"iceberg.* is for Spark 4\.1, and pyspark 4\.2\.1 is") as raised:
        outputs.check_package(iceberg, "4.2.1")
    assert raised.value.hint == "give the package for Spark 4.2"
