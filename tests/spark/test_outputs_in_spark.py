"""Outputs that need a server or jars: PostgreSQL on this machine, and what is said where jars are missing."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.telemetry.outputs import output_of
from penstock.telemetry.registries import registry
from tests.patience import PATIENCE_S

DRIVER = "org.postgresql:postgresql:42.7.4"
KEYS = ("device", "metric")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def database(spark: Any) -> Iterator[str]:
    """The address of a PostgreSQL of this test's own."""
    if not shutil.which("initdb") or not shutil.which("postgres"):
        pytest.skip("PostgreSQL is not installed")
    try:
        spark.sql(f"ADD JAR ivy://{DRIVER}")
    except Exception as error:  # Java's
        pytest.skip(f"PostgreSQL's driver cannot be had: {str(error)[:80]}")
    user: str | None = None
    if os.getuid() == 0:  # as root the server refuses to run
        user = next((one.pw_name for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody")), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root")
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    if user:
        shutil.chown(folder, user)
    port = free_port()
    subprocess.run(
        ["initdb", "-D", folder / "data", "-A", "trust", "-U", "me", "--no-sync"],
        user=user,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    given = [f"-cport={port}", "-clisten_addresses=127.0.0.1", f"-cunix_socket_directories={folder}", "-cfsync=off"]
    command = ["postgres", "-D", str(folder / "data"), *given]
    server = subprocess.Popen(command, user=user, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if "ready to accept connections" in line:
                break
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=me"
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_table_has_the_newest_row_of_each_key_however_often_a_batch_is_written(spark: Any, database: str) -> None:
    def rows(*values: tuple[str, str | None, float]) -> Any:
        return spark.createDataFrame(list(values), "device STRING, metric STRING, value DOUBLE")

    def kept() -> set[tuple[Any, ...]]:
        table = spark.read.format("jdbc").options(url=database, driver="org.postgresql.Driver", dbtable="last").load()
        return {tuple(row) for row in table.collect()}

    output = output_of(database, "last", KEYS, "")
    output.check(spark)
    first = rows(("d1", "t", 1.0), ("d2", None, 2.0))
    output.write(first, 0)
    assert kept() == {("d1", "t", 1.0), ("d2", None, 2.0)}
    second = rows(("d1", "t", 5.0), ("d3", "t", 3.0), ("d2", None, 4.0))
    for _ in range(2):  # a batch that is repeated
        output.write(second, 1)
        assert kept() == {("d1", "t", 5.0), ("d2", None, 4.0), ("d3", "t", 3.0)}
    found = registry(f"{database}#last", spark, "")
    assert {(row["device"], row["value"]) for row in found.collect()} == {("d1", 5.0), ("d2", 4.0), ("d3", 3.0)}


def test_missing_jars_are_told_with_their_package(spark: Any) -> None:
    for text, told in (
        ("jdbc:nosuch://h/db", r"no driver for jdbc:nosuch \(--package GROUP:NAME:VERSION"),
        ("delta:/data", r"no format 'delta' here \(give its jars: --package io.delta:delta-spark_4\.\d_2.13:VERSION"),
        (
            "iceberg:lake.gaps",
            r"no format 'iceberg' here \(give its jars: --package org.apache.iceberg:iceberg-spark-runtime-4\.\d_2.13",
        ),
    ):
        with pytest.raises(InvalidConfig, match=told):
            output_of(text, "gaps", KEYS, "").check(spark)


def test_a_registry_is_a_file_with_names_or_a_folder_of_parquet(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("device,site\n007,Kiel\n")
    read = registry(str(tmp_path / "devices.csv"), spark, "")
    assert [tuple(row) for row in read.collect()] == [("007", "Kiel")]
    read.write.parquet(str(tmp_path / "devices"))
    assert registry(str(tmp_path / "devices"), spark, "").collect() == read.collect()
    with pytest.raises(InvalidConfig, match="registry /nowhere: "):
        registry("/nowhere", spark, "")


def test_days_that_are_over_become_one_file_and_a_repeated_batch_changes_nothing(spark: Any, tmp_path: Path) -> None:
    def write(batch: int, day: str, *values: int) -> None:
        rows = spark.createDataFrame([(day, value) for value in values], "day STRING, value INT")
        output_of(str(tmp_path), "small", KEYS, "", "day").write(rows, batch)

    def kept() -> list[tuple[str, int]]:
        return sorted((str(row["day"]), row["value"]) for row in spark.read.parquet(str(tmp_path / "small")).collect())

    write(0, "2026-03-01", 1, 2)
    write(1, "2026-03-01", 3)
    write(2, "2026-03-02", 4)
    write(2, "2026-03-02", 4)
    first = tmp_path / "small" / "day=2026-03-01"
    assert [path.name for path in first.iterdir()] == ["batch=-2"]
    assert kept() == [("2026-03-01", 1), ("2026-03-01", 2), ("2026-03-01", 3), ("2026-03-02", 4)]
    write(3, "2026-03-01", 5)  # late
    shutil.copytree(first / "batch=-2", first / "batch=1")  # as a crash after the copy would leave it
    write(4, "2026-03-02", 6)
    assert [path.name for path in first.iterdir()] == ["batch=-4"]
    assert kept() == [
        *[("2026-03-01", value) for value in (1, 2, 3, 5)],
        *[("2026-03-02", value) for value in (4, 6)],
    ]
