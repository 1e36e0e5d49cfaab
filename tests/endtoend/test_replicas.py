"""An operator's day with a group of copies: brokers as processes, looked after by ``penstock replica`` alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.command import root
from tests.endtoend.conftest import Service
from tests.endtoend.listed_copies import ListedCopies, Row
from tests.patience import PATIENCE_S, poll

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]


class Group(ListedCopies):
    """A name server, and brokers with copies of one log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "cluster.key"
        self.key.write_text("5a" * 32)
        self.key.chmod(0o600)
        self.namesrv = Service("namesrv", port="0", cluster_secret_file=str(self.key))
        self.nodes: dict[str, Service] = {}
        self.ports: dict[str, str] = {}

    def settings(self, node: str, join: str = "", **more: str) -> dict[str, str]:
        if node not in self.ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[node] = str(free.getsockname()[1])
        own = {
            "name": "group",
            "node": node,
            "port": "0",
            "replica_port": self.ports[node],
            "data": str(self.folder / node),
            "namesrv": self.namesrv.address,
            "cluster_secret_file": str(self.key),
            "election_s": "0.5",
        }
        return own | ({"join": f"127.0.0.1:{self.ports[join]}"} if join else {}) | more

    def start(self, node: str, join: str = "", **more: str) -> Service:
        self.nodes[node] = Service("broker", **self.settings(node, join, **more))
        return self.nodes[node]

    def kill(self, *nodes: str) -> None:
        for node in nodes:
            self.nodes.pop(node).kill()

    def process(self, node: str, join: str, **more: str) -> subprocess.Popen[str]:
        """A broker that may not come to serve."""
        own = {f"PENSTOCK_BROKER_{name.upper()}": value for name, value in self.settings(node, join, **more).items()}
        return subprocess.Popen(
            [sys.executable, "-m", "broker"], env=os.environ | own, stderr=subprocess.PIPE, text=True
        )

    def refused(self, node: str, join: str) -> str:
        """What a broker says that is not let in, and ends."""
        process = self.process(node, join)
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode not in (0, None)
            return said
        finally:
            process.kill()

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = CliRunner().invoke(root, ["--server", self.namesrv.address, *words], input=stdin)
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    def done(self, *words: str) -> str:
        """A command that succeeds; what it says to people."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    def listed(self, *words: str) -> str:
        return self.run("replica", "list", "--json", *words).stdout

    def bodies(self) -> set[str]:
        read = self.run("consume", "orders", "--end", "--json").stdout
        return {json.loads(line)["body"] for line in read.splitlines()}

    def end(self) -> None:
        for service in (self.namesrv, *self.nodes.values()):
            service.kill()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        made.start("a")
        for node in "bc":
            made.start(node, "a")
        made.level(3)
        yield made
    finally:
        made.end()


def roles(rows: list[Row]) -> dict[str, str]:
    return {row["node"]: row["role"] for row in rows}


def test_a_group_grows_fails_over_has_a_lost_disk_replaced_and_is_led_by_what_is_left_of_it(group: Group) -> None:
    hears_nothing_without_the_key(group)
    grows_and_fails_over(group)
    has_a_lost_disk_replaced(group)
    is_led_by_what_is_left(group)


def grows_and_fails_over(group: Group) -> None:
    assert roles(group.level(3)) == {"a": "leader", "b": "observer", "c": "observer"}
    refused = group.run("replica", "promote", "b")
    assert (refused.returncode, "less safe than one" in refused.stderr, "promote b c" in refused.stderr) == (
        2,
        True,
        True,
    )
    assert "1 of 3 voters may be lost" in group.done("replica", "promote", "b", "c")
    assert "leads, and cannot be removed" in group.run("replica", "remove", "a", "--yes").stderr
    assert "--yes-no-failover" in group.run("replica", "demote", "c").stderr
    group.done("produce", "orders", "before")

    group.kill("a")
    group.done("produce", "orders", "after")
    second = group.leader("a")
    group.until(lambda rows: any(row["node"] == "a" and row["state"].startswith("silent") for row in rows))
    assert "Start a" in group.done("replica", "list")
    group.start("a")
    group.level(3)
    third = "c" if second == "b" else "b"
    # on a machine with much to do another node may stand for election at that moment: an operator says it again
    poll("the new leader", lambda: group.run("replica", "move-leader", third).returncode, lambda code: code == 0)
    assert group.leader() == third


def has_a_lost_disk_replaced(group: Group) -> None:
    third = group.leader()
    group.kill("a")
    shutil.rmtree(group.folder / "a")
    said = group.refused("a", third)
    assert "made anew" in said
    assert "penstock replica replace a --by a2" in said
    group.start("a2", third)
    group.until(lambda rows: any(row["node"] == "a2" and row["level"] for row in rows))
    group.done("replica", "replace", "a", "--by", "a2")
    assert sorted(roles(group.level(3))) == ["a2", "b", "c"]
    assert group.bodies() == {"before", "after"}


def hears_nothing_without_the_key(group: Group) -> None:
    other = group.folder / "other.key"
    other.write_text("6b" * 32)
    other.chmod(0o600)
    with group.process("x", "a", cluster_secret_file=str(other)) as process:
        try:
            assert process.stderr is not None
            assert "another key" in next(line for line in process.stderr if "replica" in line)
        finally:
            process.kill()
    assert sorted(roles(group.rows())) == ["a", "b", "c"]
    assert sum(file.stat().st_size for file in (group.folder / "x").rglob("*.log")) == 0


def is_led_by_what_is_left(group: Group) -> None:
    """Most of its voters are lost; the last one leads when the words are said."""
    first, second, last = sorted(roles(group.level(3)))
    address = next(row["address"] for row in group.rows() if row["node"] == last)
    group.kill(first, second)
    at = ("--address", address)
    advice = poll(
        "one voter that answers",
        lambda: group.run("replica", "list", *at).stderr,
        lambda said: "1 of 3 voters answer" in said,
    )
    assert f"penstock replica force-leader {last} --lost {first} --lost {second}" in advice
    assert group.run("produce", "orders", "refused").returncode != 0
    force = ("replica", "force-leader", last, "--lost", first, "--lost", second, *at)
    meant = group.run(*force, stdin="yes\n")
    assert (meant.returncode, "lost for good" in meant.stderr, "nothing has changed" in meant.stderr) == (2, True, True)
    assert group.run(*force, stdin=f"lose what only {first} and {second} had\n").returncode == 0
    [row] = poll("the forced leader", lambda: group.rows(*at), lambda rows: roles(rows) == {last: "leader"})
    assert row["epoch"] > 1000
    group.done("produce", "orders", "new")
    assert group.bodies() == {"before", "after", "new"}
