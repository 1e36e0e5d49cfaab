"""Why our source leaves Spark's pushing of filters alone (decision 65): the day this fails, it need not any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo


def counting() -> type[DataSource]:
    """A source of 300 rows with the tags a, b and c in turn, which takes conditions on the tag. Made in a function, so
    that Spark's workers get it by value."""

    class Rows(DataSourceReader):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self.tags = "abc"

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
            for one in filters:
                if isinstance(one, EqualTo):
                    self.tags = one.value
                else:
                    yield one

        def read(self, partition: Any) -> Iterator[tuple[str]]:
            return ((tag,) for tag in "abc" * 100 if tag in self.tags)

    class Counting(DataSource):  # type: ignore[misc, unused-ignore]
        @classmethod
        def name(cls) -> str:
            return "counting"

        def schema(self) -> str:
            return "tag STRING"

        def reader(self, schema: Any) -> Rows:
            return Rows()

    return Counting


def test_spark_mixes_the_conditions_of_two_queries_over_one_relation(spark: Any) -> None:
    spark.dataSource.register(counting())
    switch = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(switch, "true")
    try:
        frame = spark.read.format("counting").load()
        assert frame.where("tag = 'a'").count() == 100
        assert frame.count() == 100, "300 would be right: decision 65 can be taken back"
    finally:
        spark.conf.unset(switch)
