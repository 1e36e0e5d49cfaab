"""Spark outside of this process: a Python without Penstock, Spark's servers, and programs given to ``spark-submit``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pyspark

from penstock.spark.java import find_java
from penstock.spark.session import shadow_home
from tests.patience import PATIENCE_S

HERE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TESTS_OWN = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}


def write_bare_python(folder: Path) -> Path:
    """A Python with all that is installed here, but for Penstock: a folder that another one names is only looked into,
    and what is installed there by a link (a ``.pth`` file) is not followed."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "installed.pth").write_text(f"{Path(pyspark.__file__).parents[1]}\n")
    return folder / "bin" / "python"


def environment(folder: Path, python: Path, **more: str) -> dict[str, str]:
    """What Spark's own programs need to run here, on loopback, with workers on this Python."""
    kept = {name: value for name, value in os.environ.items() if name not in TESTS_OWN}
    java = str(find_java(os.environ, folder).home)
    return (
        kept | HERE | {"JAVA_HOME": java, "SPARK_HOME": str(shadow_home(folder)), "PYSPARK_PYTHON": str(python)} | more
    )


def has_penstock(python: Path, folder: Path) -> bool:
    """Whether what Spark runs on this Python could import Penstock."""
    command = [str(python), "-c", "import pyspark, pyarrow, penstock"]
    ran = subprocess.run(command, env=environment(folder, python), cwd=folder, capture_output=True, check=False)
    assert ran.returncode == 0 or b"No module named 'penstock'" in ran.stderr
    return ran.returncode == 0


class SparkServer:
    """One of Spark's servers, started by a command and ready when it says so on its output.

    Attributes:
        ready: what it said.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path, ready: str) -> None:
        self.said: list[str] = []
        self._process = subprocess.Popen(
            command,
            env=environ,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._found = threading.Event()
        self._ready = re.compile(ready)
        assert self._process.stdout is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()
        self.ready: re.Match[str] | None = None
        if not self._found.wait(PATIENCE_S) or (match := self._match()) is None:
            self.stop()
            raise AssertionError("".join(self.said[-30:]))
        self.ready = match

    def _listen(self, output: IO[str]) -> None:
        for line in output:
            self.said.append(line)
            if self._ready.search(line):
                self._found.set()
        self._found.set()  # it has ended

    def _match(self) -> re.Match[str] | None:
        return next(filter(None, map(self._ready.search, self.said)), None)

    def stop(self) -> None:
        """Ends it with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def program(home: str, name: str) -> str:
    """The path of one of Spark's programs."""
    return str(Path(home) / "bin" / name)


def connect_server(folder: Path, python: Path) -> SparkServer:
    """A Spark Connect server with Spark in it; its address is group 1 of ``ready``."""
    environ = environment(folder, python)
    command = [program(environ["SPARK_HOME"], "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": LIGHT_JAVA,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    for item in settings.items():
        command += ["--conf", "=".join(item)]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    return SparkServer(command, environ, folder, r"Connect server started at: (127\.0\.0\.1:\d+)")


class Standalone:
    """A standalone cluster on loopback: a master and two workers of one core each.

    Attributes:
        url: of the master.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.environ = environment(folder, python, SPARK_DAEMON_JAVA_OPTS=LIGHT_JAVA, SPARK_DAEMON_MEMORY="256m")
        self._started: list[SparkServer] = []
        start = [program(self.environ["SPARK_HOME"], "spark-class"), "org.apache.spark.deploy.master.Master"]
        start += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        try:
            master = self._start(start, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
            assert master.ready is not None
            self.url = master.ready[1]
            for number in range(2):
                self._start(self._worker(number), "Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def _worker(self, number: int) -> list[str]:
        start = [program(self.environ["SPARK_HOME"], "spark-class"), "org.apache.spark.deploy.worker.Worker"]
        start += ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        return [*start, "--work-dir", str(self.folder / f"work-{number}"), self.url]

    def _start(self, command: Sequence[str], ready: str) -> SparkServer:
        self._started.append(SparkServer(command, self.environ, self.folder, ready))
        return self._started[-1]

    def submit(self, job: Path, *arguments: str, archive: Path) -> subprocess.CompletedProcess[str]:
        """Runs a job by ``spark-submit`` with an archive for ``--py-files``; it waits for both executors."""
        command = [
            program(self.environ["SPARK_HOME"], "spark-submit"),
            "--master",
            self.url,
            "--py-files",
            str(archive),
        ]
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": LIGHT_JAVA,
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": LIGHT_JAVA,
            "spark.executor.memory": "600m",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        for item in settings.items():
            command += ["--conf", "=".join(item)]
        return subprocess.run(
            [*command, str(job), *arguments],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def stop(self) -> None:
        for server in reversed(self._started):
            server.stop()
