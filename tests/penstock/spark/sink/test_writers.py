"""Spark's writers without Spark: what they refuse, and what they know of a task."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import BinaryType, DoubleType, StringType, StructType

from penstock.errors import InternalError, InvalidConfig
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.writers import BatchWriter, StreamWriter, check_mode, check_schema
from penstock.spark.source import PenstockSource

ROWS = StructType().add("value", BinaryType()).add("key", StringType())


def test_a_source_makes_both_writers_and_they_travel() -> None:
    for writer in (
        PenstockSource({"topic": "t"}).writer(schema=ROWS, overwrite=False),
        PenstockSource({"topic": "t", "checkpointLocation": "/c"}).streamWriter(schema=ROWS, overwrite=True),
    ):
        assert type(pickle.loads(pickle.dumps(writer))) is type(writer)


def test_what_cannot_be_written_is_refused_before_anything_is() -> None:
    with pytest.raises(InvalidConfig, match="no topic: nothing was written"):
        PenstockSource({}).writer(schema=ROWS, overwrite=False)
    with pytest.raises(InvalidConfig, match="no topic: nothing was written"):
        PenstockSource({}).streamWriter(schema=ROWS, overwrite=False)
    with pytest.raises(InvalidConfig, match="a topic is a log"):
        PenstockSource({"topic": "t"}).writer(schema=ROWS, overwrite=True)
    with pytest.raises(InvalidConfig, match="BINARY or STRING, not DOUBLE"):
        check_schema(StructType().add("value", DoubleType()), SinkOptions(topic="t"))
    check_mode(False)


def test_batch_writes_are_told_apart_unless_they_have_an_id() -> None:
    first, second = BatchWriter(SinkOptions()), BatchWriter(SinkOptions())
    assert first._write != second._write
    assert BatchWriter(SinkOptions(write_id="w"))._write == "w"


def test_outside_of_a_task_nothing_is_written() -> None:
    for writer in (BatchWriter(SinkOptions()), StreamWriter(SinkOptions())):
        with pytest.raises(InternalError, match="in Spark's tasks only"):
            writer.write(iter(()))
