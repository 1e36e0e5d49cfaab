"""One node of three loses its power, or its disk fails, while it leads and while it follows: nothing acknowledged is
lost, and it comes back level. Its folder is an XFS that is shut down without its journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from loadtest.soak import can_lose_power, lose_power, make_image, mounted
from tests.endtoend.copies import Asking, Group, Load, asking, check_equal_bytes

pytestmark = [pytest.mark.endtoend, pytest.mark.slow, pytest.mark.replicas]

ROUNDS = int(os.environ.get("PENSTOCK_POWER_LOSSES", "1"))


class Machine:
    """The folder of node a, on a file system of its own."""

    def __init__(self, group: Group, work: Path) -> None:
        self._group = group
        self._image = work / "a.img"
        self.place = group.data / "a"
        self._mount = ExitStack()
        make_image(self._image)
        self.begin()

    def begin(self) -> None:
        """Its file system is mounted: what was not on the medium is gone."""
        self._mount.enter_context(mounted(str(self._image), self.place, "-o", "loop"))

    def end(self) -> None:
        self._mount.close()

    def lose_power(self) -> None:
        """It stops within an instruction, and so does its disk."""
        self._group.freeze("a")
        lose_power(self.place)
        self._group.frozen.discard("a")
        self._group.kill("a")
        self.end()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    if why := can_lose_power(tmp_path):
        pytest.skip(why)
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def machine(group: Group, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(group, tmp_path)
    yield made
    for node in list(group.nodes):
        group.kill(node)
    made.end()


async def back(asks: Asking, load: Load, machine: Machine) -> None:
    """The others go on without a; it comes back, and catches up."""
    await asks.leader()
    await load.more()
    machine.begin()
    asks.group.start("a", join=await asks.address(await asks.leader()))
    await asks.caught_up()
    await load.more()


async def test_a_node_that_loses_its_power_or_its_disk_comes_back_and_nothing_is_lost(
    group: Group, machine: Machine
) -> None:
    group.start("a")
    load = Load(group.servers)
    async with asking(group) as asks, trio.open_nursery() as nursery:
        await asks.grown()
        nursery.start_soon(load.run)
        for _ in range(ROUNDS):
            await load.more()
            await asks.move_lead("a")
            await load.more()
            machine.lose_power()  # as the leader
            await back(asks, load, machine)
            await asks.move_lead("b")
            await load.more()
            machine.lose_power()  # as a follower
            await back(asks, load, machine)
            await asks.move_lead("a")
            await load.more()
            lose_power(machine.place)  # its disk fails: fsync says so
            assert await trio.to_thread.run_sync(group.nodes["a"].wait) not in (0, None)
            group.kill("a")
            machine.end()
            await back(asks, load, machine)
        await load.finish()
        await asks.level()
        stored = await asks.stored()
        nursery.cancel_scope.cancel()
    load.check(stored)
    check_equal_bytes(*[group.data / name for name in "abc"])
