"""docs/guide/backend.md: every block runs, in the order of the page, against real servers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "backend.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
DEFAULT = "127.0.0.1:9876"


def run(command: list[str], servers: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        env=os.environ | {"PENSTOCK_SERVER": servers, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.endtoend
@pytest.mark.slow
def test_every_block_of_the_guide_runs(real_cluster: Any) -> None:
    shown: list[str] = []
    for language, block in BLOCKS:
        if language == "python":
            assert f'SERVERS = "{DEFAULT}"' in block
            shown.append(
                run([sys.executable, "-c", block.replace(DEFAULT, real_cluster.servers)], real_cluster.servers)
            )
        for line in block.splitlines() if language == "sh" else []:
            if line != "penstock up":
                command = "from penstock.cli.root import root; root(prog_name='penstock')"
                shown.append(run([sys.executable, "-c", command, *shlex.split(line)[1:]], real_cluster.servers))
    said = "\n".join(shown)
    assert "1000 stored" in said
    assert "1001 messages until now" in said
    assert "telemetry has it" in said
    assert "5 of 10 are wanted" in said
    assert "10 charges are done, the last one is b'3'" in said
    assert "host-2 has [b'10.00']" in said
    assert "10 pictures went to the handler" in said
    assert "b'one' is printed, attempt 1" in said
    assert "stored, on the disk" in said
    assert "not stored a topic's name is one level" in said
    assert "cancelled" in said
    assert "both messages are rolled back" in said
    assert "0 transactions were checked" in said
    assert "True for all parcels: reserved, paid, shipped" in said
    assert re.search(r"^save \[(0, )*1(, 0)*\]$", said, re.MULTILINE)
    assert "the sum is 5" in said
    assert "billing" in said
    assert "traced: b'new'" in said


def test_the_guide_has_blocks_of_both_kinds() -> None:
    assert {language for language, _block in BLOCKS} == {"python", "sh"}
    assert len(BLOCKS) >= 8
