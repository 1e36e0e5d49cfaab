"""What Spark shows of settings and options, in plans, errors and lists: no secret."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException

SECRET = "hunter2"


def test_no_plan_error_or_table_shows_the_value_of_a_login(
    spark: Any, cluster: Any, send: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    send("shown", [b"x"])
    given = {"servers": cluster.servers, "subscribe": "shown"}
    options = ", ".join(f"'{name}' '{value}'" for name, value in {**given, "password": SECRET, "token": SECRET}.items())
    create = f"CREATE TABLE shown USING penstock OPTIONS ({options})"
    shown = spark.sql(f"EXPLAIN FORMATTED {create}").first()[0]  # as on the page of a query; it has no SQL text
    assert "shown" in shown
    assert SECRET not in shown
    with pytest.raises(AnalysisException) as raised:
        spark.read.format("penstock").options(**given, password=SECRET).load()
    assert SECRET not in str(raised.value)
    assert SECRET not in "".join(capfd.readouterr())


def test_settings_that_are_secrets_are_hidden_wherever_spark_lists_them(spark: Any) -> None:
    conf = spark._jsc.sc().conf().clone()
    hidden = ("spark.hadoop.fs.s3a.secret.key", "spark.some.passphrase", "spark.my.credentials")
    for name in (*hidden, "spark.app.plain"):
        conf.set(name, SECRET)
    told = dict(line.split("=", 1) for line in conf.toDebugString().splitlines())
    assert [told[name] == SECRET for name in (*hidden, "spark.app.plain")] == [False, False, False, True]
