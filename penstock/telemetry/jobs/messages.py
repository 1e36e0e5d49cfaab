"""Rows of any job as messages: for a topic, or for devices under an MQTT topic name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = ("mqtt_topic", "key", "value")
_PLACE: Final = re.compile(r"\{(\w+)\}")
_NOT_IN_NAMES: Final = r"[+#\x00-\x1f]"


def messages(rows: DataFrame, pattern: str) -> DataFrame:
    """Each row as JSON in ``value``, with its device as ``key``, and its ``mqtt_topic``.

    Args:
        rows: of any job that has a column ``device``.
        pattern: the MQTT topic name, where ``{column}`` stands for a column. Characters that no topic name may have
            become ``_``; so does a ``/``, but for the one in a ``metric``.

    Raises:
        InvalidConfig: the pattern names a column that is not there.
    """
    from pyspark.sql import functions as f

    check_places(pattern, rows.columns)
    pieces = []
    for at, piece in enumerate(_PLACE.split(pattern)):
        if at % 2 == 0:
            pieces.append(f.lit(piece))
            continue
        text = f.coalesce(f.col(piece).cast("string"), f.lit("_"))
        text = text if piece == "metric" else f.replace(text, f.lit("/"), f.lit("_"))
        pieces.append(f.regexp_replace(text, _NOT_IN_NAMES, "_"))
    told = f.to_json(f.struct(*rows.columns))
    key = f.col("device") if "device" in rows.columns else f.lit(None).cast("string")
    return rows.select(f.concat(*pieces).alias("mqtt_topic"), key.alias("key"), told.cast("binary").alias("value"))


def check_places(pattern: str, columns: Sequence[str]) -> None:
    """Raises ``InvalidConfig`` where a pattern names a column that is not there."""
    for piece in _PLACE.findall(pattern):
        if piece not in columns:
            raise InvalidConfig(f"{pattern!r}: there is no {{{piece}}}", hint=f"there are {', '.join(columns)}")
