from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from node.console_command import console
from tests.patience import PATIENCE_S


@pytest.mark.endtoend
def test_a_console_alone_says_where_it_is_and_stops_when_told() -> None:
    command = [sys.executable, "-m", "node", "--server", "127.0.0.1:1", "console", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert line.startswith("ready console=http://127.0.0.1:")


def test_settings_that_cannot_be_are_one_line_and_status_2() -> None:
    result = CliRunner().invoke(console, ["--host", "0.0.0.0"], obj="127.0.0.1:9876")
    assert result.exit_code == 2
    assert "error: host is '0.0.0.0'" in result.stderr
