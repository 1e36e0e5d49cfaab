"""The command without Spark: formats, and what is told first. Queries run in tests/spark/test_history_in_spark.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.blocking import Producer
from penstock.cli.root import root
from penstock.cli.sql import format_of
from penstock.errors import InvalidConfig


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ((False, False, None), "table"),
        ((True, False, None), "csv"),
        ((False, True, None), "json"),
        ((False, False, Path("a.PARQUET")), "parquet"),
        ((True, False, Path("a.json")), "json"),
    ],
)
def test_a_file_says_by_its_name_what_it_is(flags: tuple[bool, bool, Path | None], kind: str) -> None:
    assert format_of(*flags) == kind


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"a\.xls is no file of a known kind"):
        format_of(False, False, Path("a.xls"))


def test_without_a_name_server_spark_does_not_start(monkeypatch: Any) -> None:
    result = CliRunner().invoke(root, ["--server", "127.0.0.1:1", "sql", "select 1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) <= 2


PROGRAM = """
import sys
for name in ("pyspark", "pyarrow", "orjson", "matplotlib"):
    sys.modules[name] = None
from click.testing import CliRunner
from penstock.cli.root import root
from penstock.telemetry.command import telemetry
root.add_command(telemetry)
for arguments in (["sql", "select 1"], ["report", "today"], ["telemetry", "run", "gaps"], ["telemetry", "run"]):
    result = CliRunner().invoke(root, ["--server", sys.argv[1], *arguments])
    print(result.exit_code, result.stderr.splitlines()[0])
"""


def test_without_the_extra_each_command_says_so_in_a_sentence(real_cluster: Any) -> None:
    with Producer(servers=real_cluster.servers) as producer:
        producer.send("telemetry", b"1")
    command = [sys.executable, "-c", PROGRAM, real_cluster.servers]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == 4
    assert [line for line in told if not line.startswith("2 error: Spark is not installed: ")] == []
