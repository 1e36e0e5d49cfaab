"""The guide to three machines is run as it stands: this machine has an address for each of them, and nothing else is
changed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.command import root
from tests.endtoend.listed_copies import ListedCopies
from tests.endtoend.other_version import NEXT, other_version, python_path
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "failover.md").read_text()
NET = f"127.{1 + os.getpid() // 256 % 250}.{os.getpid() % 256}."

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]


def blocks(title: str) -> list[str]:
    """The commands under a heading of the guide."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, f"the guide has no section {title!r}"
    return re.findall(r"```sh\n(.*?)```", found[1], re.DOTALL)


class Machines(ListedCopies):
    """Three machines: a folder and an address for each; ``penstock`` is on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = folder / "penstock"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m node "$@"\n')
        command.chmod(0o700)
        self.environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        for machine in "abc":
            (folder / machine).mkdir()

    def run(self, block: str, machine: str = "a") -> str:
        """What a block says that is typed at a machine; each line of it succeeds."""
        own = f"{NET}{1 + 'abc'.index(machine)}"
        text = block.replace('host = "10.0.0.1"', f'host = "{own}"').replace("10.0.0.", NET)
        done = subprocess.run(
            ["bash", "-ec", text],
            cwd=self.folder / machine,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        if exported := re.search(r"^export PENSTOCK_SERVER=(\S+)", text, re.MULTILINE):
            self.environ["PENSTOCK_SERVER"] = exported[1]
        return done.stdout

    def up(self, block: str, machine: str) -> None:
        """Starts a node as printed, and waits until it says that it is ready."""
        node = re.search(r"--node (\S+)", block)
        assert node
        line = block.strip().replace("10.0.0.", NET)
        process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=self.folder / machine,
            env=self.environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.nodes[node[1]] = process
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("ready"), said

    def stop(self, node: str, how: int) -> None:
        process = self.nodes.pop(node)
        process.send_signal(how)
        process.communicate(timeout=PATIENCE_S)

    def listed(self, *words: str) -> str:
        command = ["--server", self.environ["PENSTOCK_SERVER"], "replica", "list", "--json", *words]
        return CliRunner().invoke(root, command).stdout

    def end(self) -> None:
        for node in list(self.nodes):
            self.stop(node, signal.SIGKILL)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_no_block_of_the_guide_is_left_out() -> None:
    titles = re.findall(r"^## (.+)$", GUIDE, re.MULTILINE)
    assert {title: len(blocks(title)) for title in titles if blocks(title)} == {
        "1. A key": 1,
        "2. A file of settings on each machine": 1,
        "3. The first node": 1,
        "4. Two more": 2,
        "5. Let them vote": 1,
        "6. See it": 2,
        "Upgrade one node at a time": 2,
        "A disk is lost": 2,
    }
    assert GUIDE.count("```sh") == 12


def test_the_guide_leads_from_nothing_to_failover_upgrade_and_a_new_disk(machines: Machines) -> None:
    machines.run(*blocks("1. A key"))
    for machine in "abc":
        machines.run(*blocks("2. A file of settings on each machine"), machine)
        if machine != "a":
            shutil.copy(machines.folder / "a" / "cluster.key", machines.folder / machine)
    ups = dict(zip("abc", [*blocks("3. The first node"), *blocks("4. Two more")], strict=True))
    for machine, block in ups.items():
        machines.up(block, machine)
    vote = blocks("5. Let them vote")[0]
    machines.environ["PENSTOCK_SERVER"] = f"{NET}1:9876"
    machines.level(3)
    machines.run(vote)
    machines.level(3)

    before, after = blocks("6. See it")
    machines.run(before)
    was = machines.leader()
    machines.stop(was, signal.SIGKILL)
    said = machines.run(after)
    assert "before" in said
    assert "after" in said
    machines.up(ups[was], was)
    machines.level(3)

    look, move = blocks("Upgrade one node at a time")
    machines.environ["PYTHONPATH"] = python_path(other_version(machines.folder / "next", NEXT))
    leader = machines.leader()
    for node in "abc".replace(leader, ""):
        machines.stop(node, signal.SIGTERM)
        machines.up(ups[node], node)
        machines.run(look)
        machines.level(3)
    other = "c" if leader == "b" else "b"
    machines.run(move.replace("move-leader b", f"move-leader {other}"))
    assert machines.leader() == other
    machines.stop(leader, signal.SIGTERM)
    machines.up(ups[leader], leader)
    machines.level(3)

    new, replace = blocks("A disk is lost")
    if machines.leader() == "c":
        machines.run("penstock replica move-leader a")
    machines.stop("c", signal.SIGKILL)
    machines.up(new, "c")
    machines.until(lambda rows: any(row["node"] == "c2" and row["level"] for row in rows))
    machines.run(replace)
    assert sorted(row["node"] for row in machines.level(3)) == ["a", "b", "c2"]
    assert {"before", "after"} <= set(machines.run("penstock consume orders --end --raw").split())
