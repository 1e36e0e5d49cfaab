"""pyspark's daemon with our endings, as Java starts it: a process, a socket, and a worker behind that."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from penstock.spark.launchers import write_python
from penstock.spark.workers import has_hung_up, quiet
from tests.patience import PATIENCE_S

EXCEPTION = struct.pack("!i", -2)


class Daemon:
    """A daemon as Java starts it. Its workers are told a wrong version of Python, so that all answer with an error."""

    def __init__(self, python: str, folder: str) -> None:
        environ = os.environ | {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
        }
        command = [python, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self._process.stdout is not None
        (size,) = struct.unpack("!i", self._process.stdout.read(4))
        self._path = self._process.stdout.read(size).decode()

    def worker(self) -> tuple[socket.socket, int]:
        """A fresh worker's connection and a descriptor that is ready when its process has ended."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(self._path)
        (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        return connection, os.pidfd_open(pid)

    def end(self) -> str:
        """Ends it as Java does; what it and its workers have printed."""
        return self._process.communicate(timeout=PATIENCE_S)[1].decode()

    def maps(self) -> str:
        """The files in its memory."""
        return Path(f"/proc/{self._process.pid}/maps").read_text()


@pytest.fixture
def start() -> Iterator[Callable[[str], Daemon]]:
    with TemporaryDirectory() as folder:  # the path of a socket must be short
        yield lambda python: Daemon(python, folder)


def told(connection: socket.socket) -> None:
    connection.sendall(struct.pack("!i", 3) + b"0.0")


def has_ended(process: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        return bool(poll.poll(PATIENCE_S * 1000))
    finally:
        os.close(process)


def printed_by_a_worker_that_spark_left(daemon: Daemon) -> str:
    for before_the_answer in (lambda one: None, told):  # idle, or at work
        connection, process = daemon.worker()
        before_the_answer(connection)
        connection.close()
        assert has_ended(process)
    return daemon.end()


def test_a_worker_that_spark_left_prints_nothing(start: Callable[[str], Daemon], tmp_path: Path) -> None:
    launcher = write_python(sys.executable, tmp_path)
    assert printed_by_a_worker_that_spark_left(start(str(launcher))) == ""


def test_a_worker_has_what_the_source_imports_when_it_begins(start: Callable[[str], Daemon], tmp_path: Path) -> None:
    for python, has_all in ((str(write_python(sys.executable, tmp_path)), True), (sys.executable, False)):
        daemon = start(python)  # which says where it listens after all imports
        assert ("libarrow" in daemon.maps()) is has_all
        daemon.end()


def test_pysparks_own_daemon_still_prints_so_that_ours_is_needed(start: Callable[[str], Daemon]) -> None:
    assert "BrokenPipeError" in printed_by_a_worker_that_spark_left(start(sys.executable))


def test_an_error_reaches_spark_while_it_listens(start: Callable[[str], Daemon], tmp_path: Path) -> None:
    daemon = start(str(write_python(sys.executable, tmp_path)))
    connection, process = daemon.worker()
    told(connection)
    assert connection.recv(4, socket.MSG_WAITALL) == EXCEPTION
    (size,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    assert "PYTHON_VERSION_MISMATCH" in connection.recv(size, socket.MSG_WAITALL).decode()
    connection.close()
    assert has_ended(process)
    assert daemon.end() == ""


@pytest.mark.parametrize("error", [BrokenPipeError("elsewhere"), EOFError("elsewhere"), ValueError("elsewhere")])
def test_an_error_that_is_not_of_sparks_hanging_up_is_raised(error: Exception) -> None:
    def work(sock: socket.socket, authenticated: bool) -> int:
        raise error

    mine, sparks = socket.socketpair()
    with mine, sparks, pytest.raises(type(error), match="elsewhere"):
        quiet(work)(mine, True)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
def test_a_peer_has_hung_up_when_it_closed_and_not_before(
    pair: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    mine, peer = pair()
    with mine:
        peer.sendall(b"unread")
        assert not has_hung_up(mine)
        peer.close()
        poll = select.poll()
        poll.register(mine, select.POLLRDHUP)
        assert poll.poll(PATIENCE_S * 1000)
        assert has_hung_up(mine)
