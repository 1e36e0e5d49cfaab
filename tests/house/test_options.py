"""The options of Spark's source and sink have types for editors: compared here, as each landing runs this folder."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

SHORT = "its type belongs into penstock/spark/option_names.py"


@pytest.mark.skipif(not find_spec("pyarrow"), reason="the extra spark is not installed")
def test_each_option_of_spark_has_a_type_and_no_other_has() -> None:
    from penstock.spark import options
    from penstock.spark.option_names import ReadOptions, WriteOptions
    from penstock.spark.sink import options as sink_options

    assert set(ReadOptions.__annotations__) == set(options.NAMES), SHORT
    assert set(WriteOptions.__annotations__) == set(sink_options.NAMES), SHORT
