"""The real system as child processes on free ports of the loopback interface; whatever a test starts ends with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.endtoend.lines import end_all
from tests.endtoend.mqtt_clients import Library, Places, start
from tests.patience import PATIENCE_S

READY = re.compile(
    r"^ready mqtt=(\S+):(\d+) broker=(\S+) namesrv=(\S+) http=(\S+) "
    r"((?:mqtt-\S+ )*)(?:events=(\S+) )?(?:console=\S+ )?data=(.*)$"
)
STOP_S = PATIENCE_S
TESTS = Path(__file__).parents[1]
LONGEST = (
    "endtoend/test_demo",
    "loadtest/test_bench",
    "loadtest/native/test_bench",
    "endtoend/test_spine",
    "endtoend/test_two_brokers",
    "loadtest/test_soak",
    "loadtest/native/test_leased",
    "loadtest/test_timer_scale",
    "endtoend/test_shares",
    "endtoend/test_retries",
    "loadtest/native/test_rebalancing",
    "endtoend/test_several_hosts",
    "endtoend/test_failover",
    "endtoend/test_failover_power",
    "endtoend/test_failover_hosts",
)
"""Files that take longest, which come first: so workers that run a file at a time end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {TESTS / f"{name}.py": at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


class System:
    """One `penstock up` and where it can be reached."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.mqtt_host, self.mqtt_port = "", 0
        self.broker = self.namesrv = self.http = self.events = ""
        self.listeners: dict[str, str] = {}

    def start(self) -> System:
        """Starts the system and waits for its ready line."""
        ports = {"--mqtt-port": self.mqtt_port, "--broker-port": _port(self.broker)}
        ports |= {"--namesrv-port": _port(self.namesrv), "--http-port": _port(self.http)}
        command = [sys.executable, "-m", "node", "up", "--data", str(self.data), "--console-port", "-1", *self._options]
        command += [str(part) for pair in ports.items() for part in pair]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = READY.match(line.strip())
        assert match, f"no ready line but {line!r}"
        self.mqtt_host, self.mqtt_port = match[1], int(match[2])
        self.broker, self.namesrv, self.http = match[3], match[4], match[5]
        self.events = match[7] or ""
        self.listeners = dict(word.removeprefix("mqtt-").split("=") for word in match[6].split())
        return self

    def process_of(self, role: str) -> int:
        """Process id of a service: the whole system's, or with --processes a child that runs ``role``."""
        assert self._process is not None
        return next(iter(self.processes_of(role)), self._process.pid)

    def processes_of(self, role: str) -> list[int]:
        """Process ids of the children that run ``role``; one that has ended is missing until it is started again."""
        assert self._process is not None
        found = []
        for pid in _children(self._process.pid):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if f"-m\0{role}\0" in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
        return found

    def kill(self, role: str = "node") -> int:
        """kill -9 of one service; returns the process id that died."""
        pid = self.process_of(role)
        os.kill(pid, signal.SIGKILL)
        if self._process is not None and pid == self._process.pid:
            self._process.wait()
            self._close_pipe()
        return pid

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Waits for the end; returns the exit status."""
        assert self._process is not None
        status = self._process.wait(timeout=STOP_S)
        self._close_pipe()
        return status

    def end(self) -> None:
        """Whatever happened: nothing that this system started lives on."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


class Service:
    """One service as a process of its own. ``inside``: the words that run a command where it is to be."""

    def __init__(self, module: str, *, inside: Sequence[str] = (), **settings: str) -> None:
        own = {f"PENSTOCK_{module.upper()}_{name.upper()}": value for name, value in settings.items()}
        self._process = subprocess.Popen(
            [*inside, sys.executable, "-m", module], stdout=subprocess.PIPE, text=True, env=os.environ | own
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith("starting"):  # it has status pages
            line = self._process.stdout.readline()
        ready = re.match(rf"ready {module}=(\S+):(\d+)(?: status=(\S+))?", line)
        if ready is None:
            self.kill()
        assert ready, f"no ready line but {line!r}"
        self.place = (ready[1], int(ready[2]))
        self.address = f"{ready[1]}:{ready[2]}"
        self.status = ready[3]
        self.pid = self._process.pid

    def freeze(self) -> None:
        """It stands still, as if its machine did."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on, and does not know that it stood still."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Waits until it has ended by itself; returns the exit status."""
        return self._process.wait(timeout=STOP_S)

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2] or 0)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


@pytest.fixture(autouse=True)
def no_open_lines() -> Iterator[None]:
    """One failure never makes a second: connections end with their test."""
    yield
    end_all()


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Makes systems on a folder of this test: ``system().start()``, ``system("--processes").start()``."""
    made: list[System] = []

    def make(*options: str, data: Path | None = None) -> System:
        made.append(System(data or tmp_path / "data", *options))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def library(places: Places) -> Iterator[Callable[[str], Library]]:
    """Libraries by label, each started once for all tests of a file, which says in its ``places`` where to."""
    started: dict[str, Library] = {}

    def find(label: str) -> Library:
        if label not in started:
            started[label] = start(label, places)
        return started[label]

    yield find
    for one in started.values():
        one.close()
