"""Delta Lake on its own jars, which Spark fetches from Maven Central if its version has any. Iceberg has none for a
version that Penstock runs on: ``releases.py`` writes its table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyarrow import parquet

from penstock.errors import InvalidConfig
from penstock.telemetry.outputs import fitting
from tests.patience import PATIENCE_S

RELEASE = ".".join(pyspark.__version__.split(".")[:2])
FOR, PACKAGE = "4.2", "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The newest jars of 2026-11, and the version of Spark that they are for."""


def run(out: str, checkpoint: Path, servers: str) -> None:
    """Runs a job of alerts into a table; skips the test where the jars cannot be had."""
    if RELEASE != FOR:
        pytest.skip(f"the newest jars of Delta Lake are for Spark {FOR}; this is {RELEASE}")
    flags = ["--server", servers, "--topic", "delta-made", "--once", "--light", "--rule", "t > 0", "--package"]
    flags += [PACKAGE, "--out", out, "--checkpoint", str(checkpoint)]
    command = [sys.executable, "-m", "penstock.telemetry", "alerts", *flags]
    folder = checkpoint.parent
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if "unresolved dependency" in ran.stdout + ran.stderr:
        pytest.skip("the jars of Delta Lake cannot be had from Maven Central")
    assert ran.returncode == 0, ran.stderr[-3000:]


def kept(folder: Path) -> list[str]:
    """The devices of all rows of a table to which rows were only added."""
    files = [one for one in folder.rglob("*.parquet") if "_delta_log" not in one.parts]
    return sorted(
        device for one in files for device in parquet.read_table(one, columns=["device"]).column(0).to_pylist()
    )


def repeat_last_batch(checkpoint: Path) -> None:
    """Takes back Spark's commit of the last batch, as if the program had died before it."""
    commit = max((checkpoint / "query" / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    commit.unlink()  # a light session writes no checksum beside it


def test_a_table_of_delta_lake_has_each_batch_of_a_query_once(cluster: Any, send: Any, tmp_path: Path) -> None:
    for device in ("d1", "d2"):
        send("delta-made", [b'{"value": 1}'], mqtt_topic=f"delta-made/{device}/t", key=device)
    table = tmp_path / "table"
    run(f"delta:{table}", tmp_path / "first", cluster.servers)
    assert kept(table) == ["d1", "d2"]
    repeat_last_batch(tmp_path / "first")
    run(f"delta:{table}", tmp_path / "first", cluster.servers)
    assert kept(table) == ["d1", "d2"]
    run(f"delta:{table}", tmp_path / "second", cluster.servers)  # a query of its own, whose batches are new
    assert kept(table) == ["d1", "d1", "d2", "d2"]


def test_jars_for_another_spark_are_told_in_a_sentence(spark: Any) -> None:
    """Jars that Spark was given otherwise than by ``--package``, whose name says it before."""
    with (
        pytest.raises(InvalidConfig, match=r"the jars of delta are for another version of Spark than 4\."),
        fitting(spark, "delta"),
    ):
        spark._jvm.java.lang.System.load("/nonexistent.so")  # UnsatisfiedLinkError, a LinkageError too
    with pytest.raises(Exception, match='input string: "none"'), fitting(spark, "delta"):
        spark._jvm.java.lang.Integer.parseInt("none")
