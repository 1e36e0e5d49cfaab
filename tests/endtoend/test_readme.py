"""What the README shows is run as it stands, with this test's addresses in place of the usual ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.endtoend


def section(title: str) -> str:
    """Everything under a heading of the README."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the README has no section {title!r}"
    return found[1]


def block(title: str, language: str) -> str:
    """The first code block of a section."""
    found = re.search(rf"```{language}\n(.*?)```", section(title), re.DOTALL)
    assert found, f"section {title!r} has no {language} block"
    return found[1]


def penstock(system: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "node", "--server", system.namesrv, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_the_backend_developers_block_runs(system: Any) -> None:
    running = system().start()
    code = block("A backend service", "python")
    assert "Producer()" in code
    assert 'start="earliest")' in code
    code = code.replace("Producer()", f"Producer({running.namesrv!r})")
    code = code.replace('start="earliest")', f'start="earliest", servers={running.namesrv!r})')
    process = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "sensors/d7/setpoint b'22.0'\n"
    finally:
        process.kill()
        process.communicate()


def test_the_operators_commands_answer(system: Any) -> None:
    running = system().start()
    assert penstock(running, "produce", "orders", "hello").returncode == 0
    listed = penstock(running, "topic", "list")
    assert listed.returncode == 0
    assert "orders" in listed.stdout
    consumed = penstock(running, "consume", "orders", "--group", "my-service", "--count", "1")
    assert consumed.returncode == 0
    assert "hello" in consumed.stdout
    shown = penstock(running, "group", "show", "my-service")
    assert shown.returncode == 0
    assert "orders:" in shown.stdout


def test_a_command_without_a_server_says_what_to_start() -> None:
    tried = subprocess.run(
        [sys.executable, "-m", "node", "--server", "127.0.0.1:1", "topic", "list"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert tried.returncode == 1
    assert "127.0.0.1:1" in tried.stderr
    assert "penstock up" in tried.stderr
