"""A Spark Connect server whose Python has no Penstock, and an analyst's program that knows its address alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outside import SparkServer, connect_server

from tests.patience import PATIENCE_S

pytest.importorskip("grpc_status", reason="the packages of Spark Connect are not installed")
pytest.importorskip("zstandard", reason="the packages of Spark Connect are not installed")


@pytest.fixture
def server(tmp_path: Path, bare_python: Path) -> Iterator[SparkServer]:
    running = connect_server(tmp_path, bare_python)
    yield running
    running.stop()


@pytest.mark.long
def test_a_session_at_a_server_without_penstock_reads_batches_and_streams(
    server: SparkServer, cluster: Any, send: Any, tmp_path: Path
) -> None:
    send("connected", [b"%d" % at for at in range(100)])
    assert server.ready is not None
    environ = os.environ | {"SPARK_REMOTE": f"sc://{server.ready[1]}", "JAVA_HOME": "/nonexistent"}
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connected.py")), cluster.servers, "connected", str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    batch, zone, stream, mistake = ran.stdout.splitlines()[:4]
    assert json.loads(batch) == json.loads(stream) == list(range(100))
    assert zone == "UTC"
    assert "no live broker has topic 'missing'" in mistake
    assert "Traceback" not in ran.stdout + ran.stderr
