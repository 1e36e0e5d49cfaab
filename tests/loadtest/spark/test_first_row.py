"""A job that prints when it has its first row."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.spark import first_row
from loadtest.spark.messages import store
from tests.spark.test_history_in_spark import Kept


@pytest.mark.spark
def test_the_job_says_that_it_has_a_row_and_ends(
    spark: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store(cluster.servers, "first", 10)
    monkeypatch.setattr(first_row, "session", lambda *_, **__: Kept(spark))
    first_row.main(cluster.servers, "first")
    assert capsys.readouterr().out == "row\n"
