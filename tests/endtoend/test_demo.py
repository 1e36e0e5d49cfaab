"""`penstock up --demo`, as somebody without a terminal sees it: all stages move, and Spark's first table comes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endtoend.conftest import STOP_S

pytestmark = [pytest.mark.endtoend, pytest.mark.spark, pytest.mark.timeout(1800)]


def test_the_demo_shows_every_stage_moving_and_then_sparks_aggregates(tmp_path: Path) -> None:
    ports = ["--mqtt-port", "0", "--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]
    command = [sys.executable, "-u", "-m", "node", "up", "--demo", "--data", str(tmp_path / "data"), *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready mqtt=")
        awaited = {"published", "stored", "received", "consumed"}
        for shown in process.stdout:
            awaited -= {word for word, rate in re.findall(r"(\w+) ([\d.]+)/s", shown) if float(rate)}
            if "rows in batch" in shown and not awaited:
                break
            assert "ended" not in shown, (tmp_path / "data" / "demo-spark.log").read_text()[-2000:]
        assert not awaited
        assert "rows in batch" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=STOP_S) == 0
    finally:
        process.kill()
        process.communicate()
