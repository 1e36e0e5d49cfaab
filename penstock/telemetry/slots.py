"""The state that a fold keeps between batches: two folders in the checkpoint, written in turn.

Batch N reads what N-1 wrote, and writes over what N-2 wrote. Spark repeats a batch that it has not committed, so a
batch that died while it wrote is repeated from the same state, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StateSlots:
    """States of one query.

    Args:
        folder: where they are; a path or anything that Spark writes to.
        schema: of the state's rows, in Spark's DDL.
    """

    def __init__(self, spark: SparkSession, folder: str, schema: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")
        self._schema = schema

    def before(self, batch: int) -> DataFrame | None:
        """The state that the batch before this one wrote; ``None`` before the first. Raises ``InvalidConfig`` if the
        folder has another batch's."""
        from pyspark.errors import AnalysisException

        if batch == 0:
            return None
        try:
            rows = self._spark.read.schema(f"{self._schema}, batch bigint").parquet(self._slot(batch - 1))
        except AnalysisException:
            raise self._missing(batch) from None
        if rows.where(rows["batch"] != batch - 1).limit(1).count():
            raise self._missing(batch)
        return rows.drop("batch")

    def write(self, state: DataFrame, batch: int) -> None:
        """Writes the state of a batch for the next one."""
        from pyspark.sql import functions as f

        marked = state.withColumn("batch", f.lit(batch).cast("bigint"))
        marked.coalesce(1).write.mode("overwrite").parquet(self._slot(batch))

    def _slot(self, batch: int) -> str:
        return f"{self._folder}/{batch % 2}"

    def _missing(self, batch: int) -> InvalidConfig:
        told = f"the state that batch {batch - 1} left is not in {self._folder}"
        return InvalidConfig(told, hint="begin with a fresh --checkpoint; --starting-offsets earliest reads all again")
