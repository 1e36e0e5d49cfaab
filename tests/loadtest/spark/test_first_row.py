"""A job that prints when it has its first row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cores import Cores
from loadtest.servers import HOST, NAMES, Penstock
from loadtest.spark.messages import store
from tests.patience import PATIENCE_S


@pytest.mark.endtoend
@pytest.mark.slow
def test_the_job_says_that_it_has_a_row_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    server = Penstock(tmp_path, Cores())
    try:
        server.start()
        servers = f"{HOST}:{server.ports[NAMES]}"
        store(servers, "first", 10)
        command = [sys.executable, "-m", "loadtest.spark.first_row", servers, "first"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (ran.returncode, ran.stdout) == (0, "row\n"), ran.stderr[-2000:]
    finally:
        server.stop()
