"""What the README shows is run as it stands, with this test's addresses in place of the usual ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.publish import single

from tests.endtoend.conftest import System
from tests.guide_blocks import Terminal, typed, up_options
from tests.patience import PATIENCE_S

BLOCKS = {(block.task, block.language): block.text for block in typed("README.md")}

pytestmark = pytest.mark.endtoend


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = System(tmp_path_factory.mktemp("readme"))
    try:
        yield system.start()
    finally:
        system.end()


def test_each_block_has_its_test() -> None:
    assert BLOCKS.keys() == {("A device", "sh"), ("A backend service", "python"), ("An operator", "sh")}
    assert len(BLOCKS) == len(typed("README.md"))


def test_the_devices_block_runs_as_printed(running: System, tmp_path: Path) -> None:
    def stir() -> None:
        single("sensors/d7/temperature", "21.5", 1, hostname="127.0.0.1", port=running.mqtt_port)

    terminal = Terminal(tmp_path, {"PENSTOCK_MQTT": f"127.0.0.1:{running.mqtt_port}"}, {}, stir)
    said = terminal.type(BLOCKS["A device", "sh"])
    assert "acknowledged: on level disk" in said
    assert "sensors/d7/temperature 21.5" in said


def backend_program(system: System) -> str:
    """The backend developer's program, for the servers of this test."""
    code = BLOCKS["A backend service", "python"]
    assert "Producer()" in code
    assert 'start="earliest")' in code
    code = code.replace("Producer()", f"Producer(servers={system.namesrv!r})")
    return code.replace('start="earliest")', f'start="earliest", servers={system.namesrv!r})')


def _hear_ctrl_c() -> None:
    """As in a terminal: a shell has what it starts in the background ignore SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("run", ["trio.run(main)", "asyncio.run(main())"])
def test_the_backend_developers_program_runs_and_ctrl_c_ends_it_without_a_word(running: System, run: str) -> None:
    code = backend_program(running)
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
        assert "sensors/d7/setpoint b'22.0'\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert (said, process.returncode) == ("", 0)
    finally:
        process.kill()
        process.communicate()


def test_the_operators_block_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with no data and on free ports, so that several tests may run at once."""
    monkeypatch.chdir(tmp_path)
    before, start, after = BLOCKS["An operator", "sh"].partition("penstock up")
    options = up_options((start + after).splitlines()[0])[2:]
    Terminal(tmp_path, {}, {}, lambda: None).type(before)
    system = System(Path("plant"), *options)
    try:
        system.start()
        words = {"127.0.0.1:8080": system.http}
        said = Terminal(tmp_path, {"PENSTOCK_SERVER": system.namesrv}, words, lambda: None).type(
            after.partition("\n")[2]
        )
        assert system.stop() == 0
    finally:
        system.end()
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
