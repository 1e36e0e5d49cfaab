"""RocketMQ beside ours: how it is fetched, started, driven and ended, with a stand-in for Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest import proc
from loadtest.cores import Cores
from loadtest.native import rocketmq
from loadtest.native.rocketmq import (
    PARTS,
    SOURCE,
    VERSIONS,
    CompiledSyncFront,
    Driver,
    Front,
    RocketMQ,
    SyncFront,
    SyncRocketMQ,
    free_ports,
    has_jars,
    prepare,
)
from loadtest.native.scenarios import CONSUMED
from loadtest.servers import Missing
from loadtest.wires import Failed
from tests.loadtest.native.test_orders import order

pytestmark = pytest.mark.endtoend

SMALL_JAVA = Path(__file__).with_name("small_java.py")
MAVEN = """
case "$(cat pom.xml build/pom.xml 2>/dev/null)" in
*{version}*) for part in {parts}; do touch "build/lib/$part-{version}.jar"; done ;;
*) echo 'not to be found'; exit 1 ;;
esac
"""


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs in front of all others, with a stand-in for Java's."""
    folder = tmp_path / "tools"
    tool(folder, "java", f'exec {sys.executable} {SMALL_JAVA} "$@"')
    tool(folder, "javac", 'while [ "$1" != -d ]; do shift; done; touch "$2/RocketDriver.class"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return folder


def jars(folder: Path, version: str) -> Path:
    (folder / "lib").mkdir(parents=True)
    for part in PARTS:
        (folder / "lib" / f"{part}-{version}.jar").touch()
    return folder


# ---------------------------------------------------------------- what it needs


@pytest.mark.parametrize(("missing", "package"), [("java", "jdk"), ("javac", "jdk"), ("mvn", "maven")])
def test_what_is_not_installed_is_named_with_its_package(
    missing: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocketmq.shutil, "which", lambda name: None if name == missing else f"/usr/bin/{name}")
    with pytest.raises(Missing, match=f"`{missing}`.*apt-get install .*{package}"):
        prepare(tmp_path)


def test_the_first_version_that_can_be_had_is_taken_and_kept(tools: Path, tmp_path: Path) -> None:
    tool(tools, "mvn", "mkdir -p build/lib" + MAVEN.format(version=VERSIONS[2], parts=" ".join(PARTS)))
    assert prepare(tmp_path / "build") == VERSIONS[2]
    assert has_jars(tmp_path / "build", VERSIONS[2])
    tool(tools, "mvn", "exit 1")
    assert prepare(tmp_path / "build") == VERSIONS[2]


def test_a_maven_that_fetches_nothing_is_told_with_what_it_said(tools: Path, tmp_path: Path) -> None:
    tool(tools, "mvn", "echo no way out; exit 1")
    with pytest.raises(Missing, match=r"Maven fetches none of 5\.5\.0, .*: no way out"):
        prepare(tmp_path / "build")


def test_the_program_is_compiled_when_it_has_changed(tools: Path, tmp_path: Path) -> None:
    folder = jars(tmp_path / "build", VERSIONS[0])
    prepare(folder)
    made = folder / "classes" / "RocketDriver.class"
    tool(tools, "javac", "echo a mistake >&2; exit 1")
    assert prepare(folder) == VERSIONS[0]
    os.utime(made, (0, 0))
    with pytest.raises(Missing, match=f"{SOURCE.name} does not compile with 5.5.0: a mistake"):
        prepare(folder)


# ---------------------------------------------------------------- a run


@pytest.fixture
def server(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocketMQ]:
    monkeypatch.setattr(rocketmq, "BUILD", jars(tmp_path / "build", VERSIONS[1]))
    monkeypatch.setattr(rocketmq.prepare, "__defaults__", (tmp_path / "build",))
    one = RocketMQ(tmp_path / "servers", Cores())
    yield one
    one.stop()


def test_a_run_is_what_happened_between_begin_and_end(server: RocketMQ) -> None:
    server.start()
    assert server.level == f"{VERSIONS[1]}, in memory, the flush follows (ASYNC_FLUSH)"
    outcome = server.perform(order())
    assert (outcome.error, outcome.messages, outcome.checked) == ("", 500, 700)
    assert (outcome.seconds, outcome.rate) == (pytest.approx(0.25), pytest.approx(2000))
    assert outcome.figures == {CONSUMED: pytest.approx(7000)}


@pytest.mark.usefixtures("server")
def test_each_server_promises_what_its_peer_does(tmp_path: Path) -> None:
    promised = {}
    for kind in (RocketMQ, SyncRocketMQ, Front, SyncFront, CompiledSyncFront):
        one = kind(tmp_path, Cores())
        one.folder.mkdir()
        (Front if isinstance(one, Front) else RocketMQ).command(one)
        [config] = [*one.folder.glob("broker.conf"), *one.folder.glob("penstock.toml")]
        promised[one.name] = config.read_text()
    wanted = ("flushDiskType=ASYNC_FLUSH", "flushDiskType=SYNC_FLUSH", '"cache"', '"disk"', '"disk"')
    assert [one in text for one, text in zip(wanted, promised.values(), strict=True)] == [True] * 5


def test_both_servers_and_the_program_end(server: RocketMQ) -> None:
    server.start()
    assert server._driver is not None
    pids = [*proc.tree(server.pid), server._driver.pid]
    assert len(pids) == 4
    server.stop()
    assert [pid for pid in pids if proc.tree(pid)] == []


def test_a_run_that_lost_messages_has_no_number(server: RocketMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL_JAVA", "lossy")
    server.start()
    assert server.perform(order()).error == "3 of 700 did not come"


def test_a_broker_that_ends_is_told_with_what_it_said(server: RocketMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL_JAVA", "dead")
    with pytest.raises(RuntimeError, match="rocketmq does not start: no room for the heap"):
        server.start()


def test_a_program_that_ends_is_a_failed_run(tmp_path: Path) -> None:
    driver = Driver([sys.executable, "-c", "print('ready')"], tmp_path)
    with pytest.raises(Failed, match="the client has ended"):
        driver.check("t", 1, 64)
    driver.end()


def test_a_program_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq, "ANSWER_S", 0.0)
    driver = Driver([sys.executable, "-c", "input()"], tmp_path)
    with pytest.raises(Failed, match="did not answer"):
        driver.check("t", 1, 64)
    driver.end()


def test_ports_have_free_neighbours() -> None:
    assert 2 < free_ports() < 65536
