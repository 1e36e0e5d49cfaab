"""``docs/examples/failover.sh``, in its short form, finds what it promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "examples" / "failover.sh"

pytestmark = [
    pytest.mark.endtoend,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.replicas,
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto's clients"),
]


def test_every_check_of_the_script_is_good(tmp_path: Path) -> None:
    for name, command in (("penstock", f"{sys.executable} -m node"), ("python3", sys.executable)):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / name).chmod(0o700)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "SHORT": "1"}
    environ["HOSTS"] = f"127.{1 + os.getpid() // 256 % 250}.{os.getpid() % 256}"
    with subprocess.Popen(
        ["bash", str(SCRIPT)], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as script:
        assert script.stdout is not None
        said = script.stdout.read()
    assert script.returncode == 0, said
    assert "BAD" not in said
    titles = re.findall(r'^say "(\d+)\.', SCRIPT.read_text(), re.MULTILINE)
    assert re.findall(r"^(\d+)\. ", said, re.MULTILINE) == titles
    assert said.count("   good: ") >= 2 * len(titles)
