"""A query and a write at a node whose ports ask for a login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from penstock.cli.root import root
from tests.node.running import RunningSystem


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[RunningSystem]:
    users, file = tmp_path / "users", tmp_path / "penstock.toml"
    made = CliRunner().invoke(root, ["user", "add", "billing", "--file", str(users)], input="pencil\n")
    assert made.exit_code == 0
    file.write_text(f'password_file = "{users}"\nconsole_port = -1\n')
    system = RunningSystem(tmp_path / "data", file)
    yield system
    system.stop()


def test_a_query_and_a_write_log_in_on_the_driver_and_on_executors(
    spark: Any, asking: RunningSystem, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("pencil")
    login = {"servers": asking.addresses.namesrv, "user": "billing", "passwordFile": str(tmp_path / "password")}
    rows = spark.range(20).selectExpr("'asked' AS topic", "CAST(id AS STRING) AS value")
    rows.write.format("penstock").mode("append").options(**login).save()
    read = spark.read.format("penstock").options(**login, subscribe="asked").load()
    assert sorted(int(row.value) for row in read.collect()) == list(range(20))


@pytest.mark.parametrize("given", [{}, {"user": "billing", "password": "geheim"}])
def test_without_the_right_password_one_sentence_says_so(
    given: dict[str, str], spark: Any, asking: RunningSystem
) -> None:
    options = {"servers": asking.addresses.namesrv, "subscribe": "asked", "brokerPatienceMs": "0", **given}
    with pytest.raises(AnalysisException) as raised:
        spark.read.format("penstock").options(**options).load().count()
    assert "log" in str(raised.value)
    assert "geheim" not in str(raised.value)
