from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

import node.command
from penstock.cli.root import root


def test_the_command_has_every_group_that_the_readme_names() -> None:
    result = CliRunner().invoke(root, ["--help"])
    assert node.command.main
    for name in ("up", "topic", "produce", "consume", "group", "mqtt", "telemetry", "store"):
        assert f"  {name} " in result.output


def test_the_shell_completes_commands() -> None:
    environ = {**os.environ, "_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock top", "COMP_CWORD": "1"}
    command = [Path(sys.executable).with_name("penstock")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["plain,top", "plain,topic"]
