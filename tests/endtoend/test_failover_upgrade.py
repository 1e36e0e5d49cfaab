"""Nodes of two versions in one group, under load: they are upgraded one at a time, and either version leads.

The next version has fields and facts that this one does not know (``other_version.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.endtoend.copies import Group, Load, asking, check_equal_bytes
from tests.endtoend.other_version import FAR, NEXT, UNKNOWN_FACT, other_version, python_path

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]


class Mixed(Group):
    """A group some of whose nodes are of another version."""

    def __init__(self, data: Path) -> None:
        self.next = other_version(data / "next", NEXT)
        self.upgraded: set[str] = set()
        super().__init__(data)

    def inside(self, name: str) -> tuple[str, ...]:
        if name not in self.upgraded:
            return ()
        return ("env", "-C", str(self.next), f"PYTHONPATH={python_path(self.next)}")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(tmp_path)
    try:
        yield made
    finally:
        made.end()


def refusal(group: Mixed, join: str) -> str:
    """What a node says of a version that is too far from the group's."""
    far = other_version(group.data / "far", FAR)
    own = {"node": "x", "name": "group", "data": str(group.data / "x"), "replica_port": "0", "port": "0", "join": join}
    own |= {"namesrv": group.servers, "cluster_secret_file": str(group.key)}
    environ = {f"PENSTOCK_BROKER_{name.upper()}": value for name, value in own.items()}
    environ["PYTHONPATH"] = python_path(far)
    command = [sys.executable, "-m", "broker"]
    with subprocess.Popen(command, env=os.environ | environ, cwd=far, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            return next(line for line in process.stderr if f"replica at {join}" in line)
        finally:
            process.kill()


async def test_nodes_of_two_versions_are_one_group_and_one_too_far_away_is_refused(group: Mixed) -> None:
    group.start("a")
    load = Load(group.servers)
    async with asking(group) as asks, trio.open_nursery() as nursery:
        first = await asks.grown()
        nursery.start_soon(load.run)
        said = await trio.to_thread.run_sync(refusal, group, first)
        assert "speaks version 3 of the replication and none before 2; this one speaks 1" in said
        for name in "bca":  # the leader last, as the guide has it
            await load.more()
            if name == "a":
                await asks.move_lead("b")
                await load.more()  # the new version leads the old one
            group.kill(name)
            group.upgraded.add(name)
            group.start(name, join=await asks.address(await asks.leader()))
            await asks.caught_up()
        await load.more()
        await load.finish()
        await asks.level()
        stored = await asks.stored()
        nursery.cancel_scope.cancel()
    load.check(stored)
    check_equal_bytes(*[group.data / name for name in "abc"])
    assert any(UNKNOWN_FACT.encode() in path.read_bytes() for path in (group.data / "a" / "log").glob("*.log"))
