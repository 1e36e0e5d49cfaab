"""The archive of Java's classes, which Java writes after the first program has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, poll

PROGRAM = "from penstock.spark import session; print(session().range(10).count())"


def archives(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("classes-*.jsa") if ".base." not in one.name]


@pytest.mark.long
def test_a_pipe_behind_the_first_program_does_not_wait_for_the_archive(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}  # as other tests set it
    environ["XDG_CACHE_HOME"] = str(tmp_path)
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.stdout == "10\n", ran.stderr
    assert list(tmp_path.rglob("classes-*.making"))
    assert not archives(tmp_path), "Java takes seconds more"
    poll("the archive", lambda: archives(tmp_path))
