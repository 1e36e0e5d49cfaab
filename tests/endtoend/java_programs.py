"""Programs with RocketMQ's own Java client: compiled with the jars of a version, which Maven fetches, and run.

A test is skipped where Maven has no jars or there is no Java.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from loadtest.maven import copy_jars
from tests.patience import PATIENCE_S

BUILD: Final = Path(__file__).parents[2] / "build" / "rocketmq-clients"
SOURCES: Final = Path(__file__).parent / "java"
_SHARED: Final = SOURCES / "shared"
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>client</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
_DEPENDENCY: Final = """<dependency><groupId>org.apache.rocketmq</groupId>
<artifactId>{}</artifactId><version>{}</version></dependency>"""
_PARTS: Final = {"4.9.8": ("rocketmq-client", "rocketmq-acl"), "5.5.0": ("rocketmq-client", "rocketmq-tools")}
"""The jars of a version; those of 5.5.0 have logins in the first one."""
_SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A program that ends within seconds does not earn back what the optimising compiler and parallel collectors take."""
BEAT_S: Final = 20
"""How often ``run`` has something done beside a program."""


def program(version: str, sources: Path = SOURCES) -> str:
    """The class path of the compiled programs of a folder with the jars of a version."""
    for tool in ("mvn", "java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    folder = BUILD / version
    jars = folder / "lib"
    if not all([(jars / f"{part}-{version}.jar").exists() for part in _PARTS[version]]):
        needed = "".join([_DEPENDENCY.format(part, version) for part in _PARTS[version]])
        fetched = copy_jars(folder, _POM.format(needed), jars)
        if fetched.returncode:
            pytest.skip(f"Maven has no rocketmq-client {version}")
    classes = folder / "classes"
    classes.mkdir(exist_ok=True)
    (classes / "rmq.logback.xml").write_text('<configuration><root level="OFF"/></configuration>\n')
    path = f"{classes}:{jars}/*"
    command = ["javac", *[f"-J{flag}" for flag in _SHORT_LIVED], "-nowarn", "-d", str(classes), "-cp", path]
    command += [str(file) for folder in (sources, _SHARED) for file in folder.glob("*.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def java(path: str, home: Path, *arguments: str) -> list[str]:
    """The command that runs a program. ``home``: where the client keeps files; ``arguments``: its class and what it is
    given."""
    client = [f"-Duser.home={home}", "-Drocketmq.client.logUseSlf4j=true"]
    return ["java", *_SHORT_LIVED, *client, "-cp", path, *arguments]


def run(
    command: list[str],
    home: Path,
    given: str = "",
    meanwhile: Callable[[], object] = lambda: None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """What a program prints, in Java or not. Fails with that and its errors where it does not end, or ends with one.

    Args:
        home: the folder that it works in.
        given: what it reads.
        meanwhile: is called every ``BEAT_S`` seconds.
        environ: its environment; ours if there is none.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=home, env=environ, text=True, **pipes) as running:  # type: ignore[call-overload]
        wanted: str | None = given
        for _ in range(2 * PATIENCE_S // BEAT_S):
            try:
                said, errors = running.communicate(wanted, BEAT_S)
                break
            except subprocess.TimeoutExpired:
                wanted = None
                meanwhile()
        else:
            running.kill()
            said, errors = running.communicate()
    assert running.returncode == 0, f"{said}\n{errors}"
    return said
