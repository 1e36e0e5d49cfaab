"""Apache RocketMQ beside our servers: its name server, its broker, and a program with its Java client.

Its jars come from Maven Central by their names when the benchmark runs, into ``build/rocketmq``, which git ignores;
the program (``RocketDriver.java``) is compiled there too. Nothing of RocketMQ is in the repository. Where there is no
Java, no Maven, or none of the versions can be had, ``Missing`` says so.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from loadtest import proc
from loadtest.maven import copy_jars, need_maven
from loadtest.native.orders import Look, Order, Outcome
from loadtest.native.scenarios import CONSUMED, FRONTS, ROCKETMQ, SYNC_FRONTS, SYNC_ROCKETMQ
from loadtest.servers import COMPILED, HOST, NAMES, ROOT, STOP_S, Missing, Server, check_compiled
from loadtest.wires import Failed

VERSIONS: Final = ("5.5.0", "5.3.3", "5.2.0", "5.1.4")
"""The first of them that can be had is taken."""
PARTS: Final = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-client")
BUILD: Final = ROOT / "build" / "rocketmq"
SOURCE: Final = Path(__file__).with_name("RocketDriver.java")
START_S: Final = 300.0
"""Two virtual machines start; on a busy machine that takes half a minute."""
ANSWER_S: Final = 60.0
WARM_UP: Final = ((128, 1), (32, 1), (1, 64))
"""Batches and messages in flight of what is sent before anything is measured, for as long as ``WARM_UP_MS`` each, so
that the virtual machines have compiled what they run."""
WARM_UP_MS: Final = 3000

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>loadtest</groupId><artifactId>peer</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_PLACES: Final = re.compile(r" rocketmq=\S+:(\d+) rocketmq_namesrv=\S+:(\d+) ")
_QUIET: Final = '<configuration><root level="OFF"/></configuration>\n'
"""Without it the client finds the broker's way of logging among the jars, and tells of it where its answers are."""
_BROKER: Final = """brokerClusterName=loadtest
brokerName=loadtest
brokerId=0
brokerIP1={host}
listenPort={port}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
flushDiskType={flush}
brokerRole=ASYNC_MASTER
autoCreateTopicEnable=true
"""


def prepare(folder: Path = BUILD) -> str:
    """Fetches the jars and compiles the program, where that has not been done; the version. Raises ``Missing``."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise Missing(f"there is no `{tool}` (Debian: apt-get install default-jdk-headless)")
    version = next((one for one in VERSIONS if has_jars(folder, one)), "") or _fetch(folder)
    classes = folder / "classes"
    made = classes / "RocketDriver.class"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        (classes / "rmq.logback.xml").write_text(_QUIET)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{folder}/lib/*", str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"{SOURCE.name} does not compile with {version}: {done.stderr.strip()[:300]}")
    return version


def has_jars(folder: Path, version: str) -> bool:
    """Whether all parts of a version are there."""
    return all((folder / "lib" / f"{part}-{version}.jar").exists() for part in PARTS)


def _fetch(folder: Path) -> str:
    need_maven()
    said = ""
    for version in VERSIONS:
        shutil.rmtree(folder, ignore_errors=True)
        dependencies = "".join([_DEPENDENCY.format(part, version) for part in PARTS])
        done = copy_jars(folder, _POM.format(dependencies), folder / "lib")
        if done.returncode == 0 and has_jars(folder, version):
            return version
        said = said or done.stdout.strip()[:300]
    raise Missing(f"Maven fetches none of {', '.join(VERSIONS)}: {said}")


def free_ports() -> int:
    """A port that is free with its neighbours: a broker listens at one, two below it and one above it."""
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        try:
            for near in (port - 2, port + 1):
                with socket.socket() as other:
                    other.bind((HOST, near))
        except (OSError, OverflowError):
            continue
        return port


class RocketMQ(Server):
    """RocketMQ's name server and broker as they come, with a heap of a gibibyte, and the program with its client."""

    name = ROCKETMQ
    level = "in memory, the flush follows (ASYNC_FLUSH)"
    flush = "ASYNC_FLUSH"
    _driver: Driver | None = None

    def command(self) -> list[str]:
        self.level = f"{prepare()}, {type(self).level}"
        self.port, names = free_ports(), free_ports()
        self.ports[NAMES] = names
        first, second = self.folder / "namesrv.conf", self.folder / "broker.conf"
        first.write_text(f"listenPort={names}\n")
        filled = _BROKER.format(host=HOST, port=self.port, store=self.folder / "store", flush=self.flush)
        second.write_text(filled)
        lib = f"{BUILD}/lib/*"
        namesrv = self._java("256m", lib, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(first))
        address = f"{HOST}:{names}"
        broker = self._java("1g", lib, "org.apache.rocketmq.broker.BrokerStartup", "-n", address, "-c", str(second))
        return ["sh", "-c", f"{shlex.join(namesrv)} >&2 & {shlex.join(broker)} >&2; kill $!"]

    def _java(self, heap: str, path: str, *arguments: str) -> list[str]:
        """They log in the folder that is their home."""
        home = [f"-Duser.home={self.folder}", f"-Drocketmq.home.dir={self.folder}"]
        return ["java", f"-Xms{heap}", f"-Xmx{heap}", *home, "-cp", path, *arguments]

    def wait_until_ready(self) -> None:
        """Until both accept and the virtual machines are warm."""
        deadline = time.monotonic() + START_S
        for port in (self.ports[NAMES], self.port):
            while not _accepts(port):
                if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                    raise self.broken()
                time.sleep(0.2)
        self._start_driver(deadline)

    def _start_driver(self, deadline: float) -> None:
        """Starts the program with the client, and lets it warm up."""
        path = f"{BUILD}/classes:{BUILD}/lib/*"
        command = self._java("512m", path, "RocketDriver", f"{HOST}:{self.ports[NAMES]}")
        self._driver = Driver(command, self.folder)
        try:
            self._warm_up(self._driver, deadline)
        except Failed as error:
            raise RuntimeError(f"{self.name}'s client does not start: {error}") from error

    def _warm_up(self, driver: Driver, deadline: float) -> None:
        """Sends for a while; the first attempts fail until the broker is known to its name server."""
        for number, (batch, in_flight) in enumerate(WARM_UP):
            while True:
                try:
                    driver.send(f"warm-{number}", batch, in_flight, 256, 0, WARM_UP_MS)
                    break
                except Failed:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)

    def perform(self, order: Order) -> Outcome:
        """Carries an order to send out, and reads everything back; what goes wrong is in the outcome."""
        assert self._driver is not None
        broker, client = proc.tree(self.pid), proc.tree(self._driver.pid)
        looks: list[Look] = []

        def look(done: int, at: float) -> None:
            looks.append(Look(at, proc.cpu_s(client), proc.cpu_s(broker), done))

        times_ms = int(order.warm_s * 1000), int(order.measure_s * 1000)
        try:
            count = self._driver.send(order.topic, order.batch, order.tasks, order.body_bytes, *times_ms, look)
            outcome = looks[0].until(looks[1])
            outcome.checked, took_ns = self._driver.check(order.topic, count, order.body_bytes)
            outcome.figures = {CONSUMED: outcome.checked / took_ns * 1e9}
        except Failed as error:
            return Outcome(error=str(error))
        return outcome

    def stop(self) -> None:
        """Ends the program, then both servers, and waits for them: the shell that started them passes no signal on,
        and may end before they do."""
        if self._driver is not None:
            self._driver.end()
        servers = proc.tree(self._process.pid)[1:] if self._process is not None else []
        _end(servers, signal.SIGTERM)
        super().stop()
        _end(servers, signal.SIGKILL)


class Front(RocketMQ):
    """`penstock up` with its front for RocketMQ's clients, and the same program with RocketMQ's own client. Topics have
    level ``cache``, which is what RocketMQ's broker promises by itself."""

    name = FRONTS[0]
    level = "in the log, fsync follows"
    topics_level = "cache"

    def command(self) -> list[str]:
        prepare()
        config = self.folder / "penstock.toml"
        config.write_text(f'console_port = -1\n[broker]\ndefault_level = "{self.topics_level}"\n')
        command = [sys.executable, "-m", "node", "up", "--data", str(self.folder / "data"), "--config", str(config)]
        for part in ("mqtt", "broker", "namesrv", "http", "rocketmq", "rocketmq-namesrv"):
            command += [f"--{part}-port", "0"]
        return command

    def wait_until_ready(self) -> None:
        """Until the front accepts and the virtual machine of the client is warm."""
        found = _PLACES.search(self.first_line())
        if found is None:
            raise self.broken()
        self.port, self.ports[NAMES] = int(found[1]), int(found[2])
        self._start_driver(time.monotonic() + START_S)


class CompiledFront(Front):
    """The same with its hot modules compiled."""

    name = FRONTS[1]
    tree = COMPILED

    def command(self) -> list[str]:
        check_compiled(COMPILED)
        return super().command()


class SyncRocketMQ(RocketMQ):
    """RocketMQ's broker where a receipt waits for the flush."""

    name = SYNC_ROCKETMQ
    level = "on the disk (SYNC_FLUSH)"
    flush = "SYNC_FLUSH"


class SyncFront(Front):
    """The front, where topics have the level ``disk``."""

    name = SYNC_FRONTS[0]
    level = "on the disk"
    topics_level = "disk"


class CompiledSyncFront(CompiledFront):
    """The same with its hot modules compiled."""

    name = SYNC_FRONTS[1]
    level = "on the disk"
    topics_level = "disk"


def _end(pids: Sequence[int], how: signal.Signals) -> None:
    """Sends the signal to those that live, and waits for their end, at most ``STOP_S`` seconds."""
    for pid in filter(proc.tree, pids):
        with suppress(ProcessLookupError):
            os.kill(pid, how)
    deadline = time.monotonic() + STOP_S
    while any(map(proc.tree, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


class Driver:
    """The process of the program with RocketMQ's client: an order is a line, and so is each part of its answer. What
    else it prints is passed over. All methods raise ``Failed`` where it says that something went wrong, or nothing."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        with (folder / "driver").open("w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._lines: deque[str] = deque()
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(
        self,
        topic: str,
        batch: int,
        in_flight: int,
        body_bytes: int,
        warm_ms: int,
        measure_ms: int,
        look: Callable[[int, float], None] = lambda done, at: None,
    ) -> int:
        """Sends until the measured time is over, and returns how many messages were sent. ``look`` is called as that
        time begins and as it ends, with how many are acknowledged and when, in seconds."""
        self._say(f"send {topic} {batch} {in_flight} {body_bytes} {warm_ms} {measure_ms}")
        for word in ("begin", "end"):
            done, at_ns = self._hear(word)
            look(done, at_ns / 1e9)
        return self._hear("sent")[0]

    def check(self, topic: str, count: int, body_bytes: int) -> tuple[int, int]:
        """Consumes a topic, which must have ``count`` messages; returns how many were compared, and the nanoseconds
        from when the first came until the last one had."""
        self._say(f"check {topic} {count} {body_bytes}")
        checked, took_ns = self._hear("checked")
        return checked, took_ns

    def _say(self, order: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(f"the client has ended: {error}") from None

    def _hear(self, word: str) -> list[int]:
        """The numbers of the next line that begins with a word."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            while self._lines:
                first, *rest = self._lines.popleft().split(" ")
                if first == word:
                    return [int(one) for one in rest]
                if first == "error":
                    raise Failed(" ".join(rest)[:300])
            self._read(deadline)

    def _read(self, deadline: float) -> None:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        if not select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise Failed(f"the client did not answer within {ANSWER_S:.0f} s")
        data = os.read(output, 65536)
        if not data:
            raise Failed("the client has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += [line.decode() for line in lines]

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
