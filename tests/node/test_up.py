from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.up import RunTotals, last_json, last_line, up
from penstock.blocking import Producer
from tests.patience import PATIENCE_S, poll


def test_help_shows_examples() -> None:
    result = CliRunner().invoke(up, ["--help"])
    assert result.exit_code == 0
    assert "penstock up --data /var/lib/penstock" in result.output


def test_a_port_that_is_none_is_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(up, ["--mqtt-port", "70000"])
    assert result.exit_code == 2
    assert "--mqtt-port" in result.output


LITTLE = 'ulimit -S -n 100 && ulimit -H -n 400 && exec "$@"'
PORTS = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]


@contextlib.contextmanager
def with_few_descriptors(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """``penstock up`` within these limits, and what its ready line says."""
    command = [sys.executable, "-m", "node", "up", f"--data={folder / 'data'}", *PORTS, *options]
    shell = ["/bin/sh", "-c", LITTLE, "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, dict(word.split("=", 1) for word in running.stdout.readline().split()[1:])
        finally:
            running.kill()


def page(ready: dict[str, str], path: str) -> str:
    with urllib.request.urlopen(f"http://{ready['http']}/{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def crowd(stack: contextlib.ExitStack, address: str) -> list[socket.socket]:
    """More connections than the system has descriptors for, until the end of ``stack``."""
    host, _, port = address.rpartition(":")
    return [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(450)]


def drain(running: subprocess.Popen[str], ready: dict[str, str]) -> None:
    """A signal drains it."""
    running.send_signal(signal.SIGUSR1)
    drained = ["gateway: this gateway is being drained"]
    poll(f"{drained}", lambda: json.loads(page(ready, "healthz"))["reasons"], drained.__eq__)


def stop_after_one_message(running: subprocess.Popen[str], ready: dict[str, str]) -> None:
    """Another signal stops it, and its last line says what was stored."""
    with Producer(servers=ready["namesrv"]) as producer:
        producer.send("orders", b"one")
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 0
    assert running.stdout is not None
    assert re.match(r"stopped: 1 message \(\d+ bytes\) stored in this run, in ", running.stdout.read())


@pytest.mark.endtoend
def test_processes_serve_further_listeners_keep_descriptors_for_pages_in_a_crowd_and_are_drained(
    tmp_path: Path,
) -> None:
    options = ["--processes", "--listen", "ws 127.0.0.1:0", "--listen", "tcp 127.0.0.1:0 name=also"]
    with with_few_descriptors(tmp_path, *options) as (running, ready):
        answer_at_further_listeners(ready)
        with contextlib.ExitStack() as stack:
            assert crowd(stack, ready["mqtt"])[-1].recv(1) == b""  # it was closed at the door
            assert page(ready, "livez") == "ok\n"
            text = page(ready, "metrics")
        assert re.search(r'gateway_listener_connections\{.*listener="also".*\} ', text)
        connected = re.search(r"^gateway_connections(?:\{.*\})? (\d+)$", text, re.MULTILINE)
        assert connected is not None
        assert '\nprocess_max_fds{service="gateway"} 400\n' in text
        assert 200 < int(connected[1]) < 350  # more than the soft limit that it began with
        drain(running, ready)
        stop_after_one_message(running, ready)
        assert len([line for line in logged(running) if "LimitNOFILE" in line]) == 1


def logged(running: subprocess.Popen[str]) -> list[str]:
    """What it has logged, without a traceback."""
    assert running.stderr is not None
    lines = running.stderr.read().splitlines()
    assert [line for line in lines if not re.match(r"\d{4}-\d\d-\d\d \S+ (WARNING|ERROR) ", line)] == []
    return lines


def answer_at_further_listeners(ready: dict[str, str]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="426"):
        urllib.request.urlopen(f"http://{ready['mqtt-ws']}/mqtt", timeout=PATIENCE_S)
    host, _, port = ready["mqtt-also"].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02c1")
        assert client.recv(4) == b"\x20\x02\x00\x00"


@pytest.mark.endtoend
def test_one_process_is_drained_and_keeps_descriptors_for_pages_in_crowds_of_devices_and_of_native_clients(
    tmp_path: Path,
) -> None:
    with with_few_descriptors(tmp_path) as (running, ready):
        drain(running, ready)
        with contextlib.ExitStack() as stack:
            crowd(stack, ready["mqtt"])
            native = crowd(stack, ready["broker"])
            native[-1].settimeout(PATIENCE_S)
            assert b"no descriptor to spare" in native[-1].recv(4096)
            assert page(ready, "livez") == "ok\n"
            with pytest.raises(urllib.error.HTTPError) as refused:
                page(ready, "readyz")
            with refused.value as told:
                assert b"broker: the listener does not accept: the process may have 400 files" in told.read()
        stop_after_one_message(running, ready)
        said = [line for line in logged(running) if "LimitNOFILE" in line]
        assert ["clients are sent away" in said[0], "the broker accepts no connections" in said[1]] == [True, True]
        assert len(said) == 2


def test_the_last_line_says_what_was_stored(tmp_path: Path) -> None:
    assert last_line(RunTotals(0, 0), tmp_path) == (
        f"stopped: no messages were stored in this run; {tmp_path} is as it was found"
    )
    assert "12,345 messages (2.5 MiB) stored in this run" in last_line(RunTotals(12_345, 2_621_440), tmp_path)
    told = json.loads(last_json(RunTotals(2, 300), tmp_path))
    assert told == {"stopped": True, "messages": 2, "bytes": 300, "data": str(tmp_path)}


@pytest.mark.endtoend
def test_a_listener_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", "--listen", "udp 127.0.0.1:0"]
    ended = subprocess.run([*command, *PORTS], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: [gateway] listener 'udp 127.0.0.1:0' cannot be read")


A_DISK_THAT_DOES_NOT_ANSWER = """
import os

listdir = os.listdir


def wait(path="."):
    if str(path).endswith("checkpoint"):
        open("{pipe}").close()  # for its other end, in a system call, for ever
    return listdir(path)


os.listdir = wait
"""


@pytest.mark.endtoend
def test_a_signal_ends_a_start_and_every_child_of_it_although_the_disk_does_not_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sitecustomize.py").write_text(A_DISK_THAT_DOES_NOT_ANSWER.format(pipe=tmp_path / "pipe"))
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "node", "up", "--processes", f"--data={tmp_path / 'data'}", *PORTS[:3]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        http = free.getsockname()[1]
    with subprocess.Popen(
        [*command, f"--http-port={http}"], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        started: list[int] = []
        try:
            poll(
                "the opening of the store",
                lambda: readiness(http),
                b"broker: opening the store\n".__eq__,
                despite=OSError,
            )
            started = children_of(running.pid)
            running.send_signal(signal.SIGTERM)
            assert running.communicate(timeout=PATIENCE_S)[1] == ""
            assert running.returncode == 0
            assert len(started) == 2
            assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
        finally:
            running.kill()
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def readiness(port: int) -> bytes:
    """The page of a system that is starting."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as asking:
        asking.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return asking.makefile("rb").read().partition(b"\r\n\r\n")[2]


def children_of(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


@pytest.mark.endtoend
def test_a_status_port_in_use_is_one_clear_error_and_nothing_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", *PORTS[:3], "--processes"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run([*command, f"--http-port={port}"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: 127.0.0.1:{port} is already in use")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.endtoend
def test_a_wrong_setting_of_a_service_is_one_line_and_nothing_is_left(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\npasword_file = "x"\n')
    command = [
        sys.executable,
        "-m",
        "node",
        "up",
        f"--data={tmp_path / 'data'}",
        f"--config={file}",
        *PORTS,
        "--processes",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {file}:2: [gateway] pasword_file is no setting (did you mean 'password_file'?)\n"
    assert not (tmp_path / "data").exists()


@pytest.mark.endtoend
def test_several_gateways_do_not_share_a_port_with_those_of_another_system(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gateways do that share it
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ports = [*PORTS[1:], f"--mqtt-port={port}"]
        command = [sys.executable, "-m", "node", "up", "--gateways=2", f"--data={tmp_path / 'data'}", *ports]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: 127.0.0.1:{port} is already in use")
