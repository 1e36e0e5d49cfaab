"""Readings joined with a registry of their devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "device"
_MARK: Final = "known"


def with_devices(readings: DataFrame, registry: DataFrame) -> DataFrame:
    """Readings with the registry's columns; ``known`` says whether the registry has the device.

    Columns of the registry that readings have too are called ``device_...``. Of several rows for one device the
    greatest counts, so that no reading is doubled.

    Args:
        readings: rows of the source with ``payload=readings``.
        registry: a table with a column ``device`` (``penstock.telemetry.registries`` reads several kinds).

    Raises:
        InvalidConfig: the registry has no column ``device``.
    """
    from pyspark.sql import functions as f

    if KEY not in registry.columns:
        raise InvalidConfig(f"the registry has no column {KEY!r}", hint=f"it has {', '.join(registry.columns)}")
    others = [name for name in registry.columns if name != KEY]
    one_each = registry.where(f.col(KEY).isNotNull()).groupBy(f.col(KEY).cast("string").alias(KEY))
    facts = f.struct(f.lit(True).alias(_MARK), *[f.col(f"`{name}`") for name in others])
    known = one_each.agg(f.max(facts).alias("_facts"))
    taken = {*readings.columns, _MARK}
    renamed = [f.col("_facts").getField(name).alias(f"device_{name}" if name in taken else name) for name in others]
    joined = readings.join(f.broadcast(known), KEY, "left")
    mark = f.coalesce(f.col("_facts").getField(_MARK), f.lit(False)).alias(_MARK)
    return joined.select(*readings.columns, mark, *renamed)
