from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.up import RunTotals, last_json, last_line, up
from penstock.blocking import Producer
from tests.patience import PATIENCE_S


def test_help_shows_examples() -> None:
    result = CliRunner().invoke(up, ["--help"])
    assert result.exit_code == 0
    assert "penstock up --data /var/lib/penstock" in result.output


def test_a_port_that_is_none_is_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(up, ["--mqtt-port", "70000"])
    assert result.exit_code == 2
    assert "--mqtt-port" in result.output


@pytest.mark.endtoend
@pytest.mark.parametrize("options", [(), ("--processes",)])
def test_a_signal_drains_the_running_system_and_another_stops_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = dict(word.split("=", 1) for word in running.stdout.readline().split()[1:])
            running.send_signal(signal.SIGUSR1)
            reasons: list[str] = []
            give_up = time.monotonic() + PATIENCE_S
            drained = ["gateway: this gateway is being drained"]
            while reasons != drained and time.monotonic() < give_up:
                with urllib.request.urlopen(f"http://{ready['http']}/healthz", timeout=PATIENCE_S) as page:
                    reasons = json.load(page)["reasons"]
            assert reasons == drained
            with Producer(servers=ready["namesrv"]) as producer:
                producer.send("orders", b"one")
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE_S) == 0
            assert re.match(r"stopped: 1 message \(\d+ bytes\) stored in this run, in ", running.stdout.read())
        finally:
            running.kill()


def test_the_last_line_says_what_was_stored(tmp_path: Path) -> None:
    assert last_line(RunTotals(0, 0), tmp_path) == (
        f"stopped: no messages were stored in this run; {tmp_path} is as it was found"
    )
    assert "12,345 messages (2.5 MiB) stored in this run" in last_line(RunTotals(12_345, 2_621_440), tmp_path)
    told = json.loads(last_json(RunTotals(2, 300), tmp_path))
    assert told == {"stopped": True, "messages": 2, "bytes": 300, "data": str(tmp_path)}


@pytest.mark.endtoend
@pytest.mark.parametrize("options", [("--processes",)])
def test_further_listeners_stand_in_the_ready_line_and_answer(tmp_path: Path, options: tuple[str, ...]) -> None:
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]
    listening = ["--listen", "ws 127.0.0.1:0", "--listen", "tcp 127.0.0.1:0 name=also"]
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", *ports, *listening, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = dict(word.split("=", 1) for word in running.stdout.readline().split()[1:])
            with pytest.raises(urllib.error.HTTPError, match="426"):
                urllib.request.urlopen(f"http://{ready['mqtt-ws']}/mqtt", timeout=PATIENCE_S)
            host, _, port = ready["mqtt-also"].rpartition(":")
            with socket.create_connection((host, int(port)), PATIENCE_S) as client:
                client.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02c1")
                assert client.recv(4) == b"\x20\x02\x00\x00"
            with urllib.request.urlopen(f"http://{ready['http']}/metrics", timeout=PATIENCE_S) as page:
                figures = page.read().decode()
            assert re.search(r'gateway_listener_connections\{.*listener="also".*\} ', figures)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE_S) == 0
        finally:
            running.kill()


@pytest.mark.endtoend
def test_a_listener_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", "--listen", "udp 127.0.0.1:0"]
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]
    ended = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=PATIENCE_S)
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
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv")]
    command = [sys.executable, "-m", "node", "up", "--processes", f"--data={tmp_path / 'data'}", *ports]
    with socket.create_server(("127.0.0.1", 0)) as free:
        http = free.getsockname()[1]
    with subprocess.Popen(
        [*command, f"--http-port={http}"], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        started: list[int] = []
        try:
            said = b""
            give_up = time.monotonic() + PATIENCE_S
            while said != b"broker: opening the store\n" and time.monotonic() < give_up:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", http), PATIENCE_S) as asking:
                    asking.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                    said = asking.makefile("rb").read().partition(b"\r\n\r\n")[2]
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


def children_of(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


@pytest.mark.endtoend
@pytest.mark.parametrize("options", [("--processes",)])
def test_a_status_port_in_use_is_one_clear_error_and_nothing_is_left(tmp_path: Path, options: tuple[str, ...]) -> None:
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv")]
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", *ports, *options]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run([*command, f"--http-port={port}"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: 127.0.0.1:{port} is already in use")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


LITTLE = 'ulimit -S -n 100 && ulimit -H -n 400 && exec "$@"'


@contextlib.contextmanager
def with_few_descriptors(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """``penstock up`` within these limits, and what its ready line says."""
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]
    command = [sys.executable, "-m", "node", "up", f"--data={folder / 'data'}", *ports, *options]
    shell = ["/bin/sh", "-c", LITTLE, "sh", *command]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, dict(word.split("=", 1) for word in running.stdout.readline().split()[1:])
        finally:
            running.kill()


@pytest.mark.endtoend
@pytest.mark.parametrize("options", [("--processes",)])
def test_a_crowd_that_takes_all_descriptors_leaves_the_status_pages_theirs(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with contextlib.ExitStack() as stack:
        running, ready = stack.enter_context(with_few_descriptors(tmp_path, *options))
        host, _, port = ready["mqtt"].rpartition(":")
        crowd = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(450)]
        assert crowd[-1].recv(1) == b""  # it was closed at the door
        for page in ("livez", "metrics"):
            with urllib.request.urlopen(f"http://{ready['http']}/{page}", timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
        connected = re.search(r"^gateway_connections(?:\{.*\})? (\d+)$", text, re.MULTILINE)
        assert connected is not None
        label = '{service="gateway"}' if options else ""
        assert f"\nprocess_max_fds{label} 400\n" in text
        assert 200 < int(connected[1]) < 350  # more than the soft limit that it began with
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
        assert running.stderr is not None
        said = running.stderr.read()
        assert said.count("LimitNOFILE") == 1
        assert len(said.splitlines()) == 1


@pytest.mark.endtoend
def test_a_crowd_of_native_clients_on_top_of_one_of_devices_leaves_the_status_pages_theirs(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running, ready = stack.enter_context(with_few_descriptors(tmp_path))
        for service in ("mqtt", "broker"):
            host, _, port = ready[service].rpartition(":")
            crowd = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(450)]
        crowd[-1].settimeout(PATIENCE_S)
        assert b"no descriptor to spare" in crowd[-1].recv(4096)
        with urllib.request.urlopen(f"http://{ready['http']}/livez", timeout=PATIENCE_S) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{ready['http']}/readyz", timeout=PATIENCE_S)
        with refused.value as page:
            assert page.read().startswith(b"broker: the listener does not accept: the process may have 400 files")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
        assert running.stderr is not None
        said = running.stderr.read().splitlines()
        assert [line for line in said if "the broker accepts no connections" in line] == said[1:]  # one, no traceback
        assert len(said) == 2


@pytest.mark.endtoend
@pytest.mark.parametrize("options", [("--processes",)])
def test_a_wrong_setting_of_a_service_is_one_line_and_nothing_is_left(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[gateway]\npasword_file = "x"\n')
    ports = [f"--{name}-port=0" for name in ("mqtt", "broker", "namesrv", "http")]
    command = [sys.executable, "-m", "node", "up", f"--data={tmp_path / 'data'}", f"--config={file}", *ports, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {file}:2: [gateway] pasword_file is no setting (did you mean 'password_file'?)\n"
    assert not (tmp_path / "data").exists()


@pytest.mark.endtoend
def test_two_systems_with_several_gateways_do_not_share_a_port(tmp_path: Path) -> None:
    ports = [f"--{name}-port=0" for name in ("broker", "namesrv", "http")]
    command = [sys.executable, "-m", "node", "up", "--gateways=2", *ports]
    first = [*command, f"--data={tmp_path / 'first'}", "--mqtt-port=0"]
    with subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            port = running.stdout.readline().split()[1].rpartition(":")[2]
            second = [*command, f"--data={tmp_path / 'second'}", f"--mqtt-port={port}"]
            ended = subprocess.run(second, capture_output=True, text=True, timeout=PATIENCE_S)
        finally:
            running.terminate()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: 127.0.0.1:{port} is already in use")
