"""RocketMQ's Java client over a move of leadership among three nodes with fronts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.endtoend.conftest import Service
from tests.endtoend.copies import Group, asking
from tests.endtoend.java_programs import SOURCES, java, program
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_a_java_producer_and_a_consumer_go_on_where_another_node_leads(group: Group, tmp_path: Path) -> None:
    """The leader and its front are killed. The clients have their own settings, but ask for routes every second; the
    program sends again what has failed."""
    path = program("5.5.0", SOURCES / "moving")
    group.start("a")
    trio.run(grown, group)
    fronts = {
        name: Service("remoting", broker=node.address, namesrv=group.servers, port="0", namesrv_port="0")
        for name, node in group.nodes.items()
    }
    names = ";".join([one.address for one in fronts.values()])
    command = java(path, tmp_path, "Moving", names, str(PATIENCE_S))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as moving:
        assert moving.stdin is not None
        assert moving.stdout is not None
        try:
            for number, line in enumerate(moving.stdout):
                if number == 50:
                    leader = trio.run(led, group)
                    fronts.pop(leader).kill()
                    group.kill(leader)
                if number == 150:
                    moving.stdin.write("end\n")
                    moving.stdin.flush()
                if not line.startswith("acknowledged"):
                    break
            assert number > 150
            assert line == "missing []\n"
        finally:
            moving.kill()
            for one in fronts.values():
                one.kill()


async def grown(group: Group) -> None:
    async with asking(group) as asks:
        await asks.grown()


async def led(group: Group) -> str:
    async with asking(group) as asks:
        return await asks.leader()
