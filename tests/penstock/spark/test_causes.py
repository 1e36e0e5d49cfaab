from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from penstock.errors import InternalError, OffsetOutOfRange
from penstock.spark import plain_errors
from penstock.spark.causes import cause

SAID = """[STREAM_FAILED] Query failed: Traceback (most recent call last):
  File "source.py", line 1, in partitions
penstock.errors.OffsetOutOfRange: queue 0 begins at 6 now; offset 2 is wanted (longer retention avoids it)
SQLSTATE: XXKST"""


@pytest.mark.parametrize("end", ["", " SQLSTATE: 38000 SQLSTATE: XXKST", ". SQLSTATE: 38000"])
def test_our_error_is_found_in_what_spark_says_of_a_failed_query(end: str) -> None:
    error = cause(SAID.replace("avoids it)", f"avoids it){end}"))
    assert isinstance(error, OffsetOutOfRange)
    assert error.message == "queue 0 begins at 6 now; offset 2 is wanted (longer retention avoids it)"


def test_another_failure_is_told_by_its_first_line() -> None:
    error = cause("\n[NO_SUCH_THING] Boom.\nat org.apache.spark")
    assert isinstance(error, InternalError)
    assert error.message.endswith("[NO_SUCH_THING] Boom.")
    assert "does not say why" in cause("").message
    assert isinstance(cause("penstock.errors.annotations: not an error"), InternalError)


def test_sparks_error_becomes_the_one_within_it() -> None:
    with pytest.raises(OffsetOutOfRange) as raised, plain_errors():
        raise PySparkException(SAID)
    assert raised.value.__suppress_context__, "a traceback has no page of Java in front of the sentence"
