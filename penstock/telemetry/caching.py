"""Frames that Spark keeps in memory for as long as they are used, and not longer, also where their use fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that is computed once within the context, however often its rows are wanted there."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
