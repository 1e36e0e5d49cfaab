"""What the README shows is run as it stands, with this test's addresses in place of the usual ones."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

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
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def backend_program(system: Any) -> str:
    """The backend developer's program, for the servers of this test."""
    code = block("A backend service", "python")
    assert "Producer()" in code
    assert 'start="earliest")' in code
    code = code.replace("Producer()", f"Producer(servers={system.namesrv!r})")
    return code.replace('start="earliest")', f'start="earliest", servers={system.namesrv!r})')


def _hear_ctrl_c() -> None:
    """As in a terminal: a shell has what it starts in the background ignore SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("run", ["trio.run(main)", "asyncio.run(main())"])
def test_the_backend_developers_program_runs_and_ctrl_c_ends_it_without_a_word(system: Any, run: str) -> None:
    code = backend_program(system().start())
    assert "trio.run(main)  # or asyncio.run(main())" in code
    code = "import asyncio\n" + code.replace("trio.run(main)  # or asyncio.run(main())", run)
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "sensors/d7/setpoint b'22.0'\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert (said, process.returncode) == ("", 0)
    finally:
        process.kill()
        process.communicate()


def test_the_operators_block_runs_as_printed_in_an_empty_folder(tmp_path: Path) -> None:
    """With a free port for each usual one, so that several tests may run at once, and nothing else changed."""
    ports = dict.fromkeys(("1883", "10911", "9876", "8080"), 0)
    for port in ports:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports[port] = free.getsockname()[1]
    (tmp_path / "penstock").write_text(f'#!/bin/sh\nexec {sys.executable} -m node "$@"\n')
    (tmp_path / "penstock").chmod(0o700)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ |= {"PENSTOCK_MQTT_PORT": str(ports["1883"]), "PENSTOCK_BROKER_PORT": str(ports["10911"])}
    environ |= {"PENSTOCK_NAMESRV_PORT": str(ports["9876"]), "PENSTOCK_HTTP_PORT": str(ports["8080"])}
    environ["PENSTOCK_SERVER"] = f"127.0.0.1:{ports['9876']}"
    said = ""
    folder = tmp_path / "empty"
    folder.mkdir()
    up: subprocess.Popen[str] | None = None
    try:
        for line in block("An operator", "sh").splitlines():
            if line.startswith("penstock up"):
                up = subprocess.Popen(
                    ["sh", "-c", f"exec {line}"], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
                )
                assert up.stdout is not None
                assert up.stdout.readline().startswith("ready mqtt=")
                continue
            line = line.replace("127.0.0.1:8080", f"127.0.0.1:{ports['8080']}")
            done = subprocess.run(
                ["sh", "-c", line], cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            said += done.stdout
    finally:
        if up is not None:
            up.terminate()
            up.communicate(timeout=PATIENCE_S)
    for shown in ("orders", "hello", "sound", "rocketmq_messages_in_total"):
        assert shown in said, said


def test_a_command_without_a_server_says_what_to_start() -> None:
    tried = subprocess.run(
        [sys.executable, "-m", "node", "--server", "127.0.0.1:1", "topic", "list"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert tried.returncode == 1
    assert "127.0.0.1:1" in tried.stderr
    assert "penstock up" in tried.stderr
