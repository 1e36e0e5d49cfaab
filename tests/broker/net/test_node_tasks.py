"""The lives of a node: what it finds damaged comes from others, and a folder that was made anew is not let in."""

from __future__ import annotations

import trio

from broker.store.segment import segment_path
from penstock.errors import InvalidConfig
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.disk import SimDisk
from tests.simulation.nodes import SimGroup, in_group


async def begin_with_messages(group: SimGroup) -> None:
    """Three voters that all have a topic with some messages."""
    await group.begin()
    await group.until_done(CreateTopic("t", 1))
    for number in range(20):
        await group.send(f"{number}" * 100)
    await group.level()


def test_rot_in_one_copy_is_repaired_from_another_before_the_node_takes_part() -> None:
    async def scenario(group: SimGroup) -> None:
        await begin_with_messages(group)
        group.b.die()
        await group.send("without b")
        path = segment_path(0)
        group.b.disk.flip(path, 4_000)
        group.b.begin(group.a.address)
        await group.level()
        logs = group.logs()
        assert logs[0] == logs[1] == logs[2]
        said = await group.describe(group.b)
        assert said is not None
        assert said.repaired

    in_group(21, scenario)


def test_rot_under_a_running_node_is_found_and_repaired() -> None:
    async def scenario(group: SimGroup) -> None:
        await begin_with_messages(group)
        for node in (group.a, group.b):  # the leader, and one that follows
            node.disk.flip(segment_path(0), 4_000)
            with trio.fail_after(120.0):
                while not (said := await group.describe(node)) or not said.repaired:  # noqa: ASYNC110 (nothing sets one)
                    await trio.sleep(0.5)
            await group.level()
            logs = group.logs()
            assert logs[0] == logs[1] == logs[2]

    in_group(22, scenario)


def test_a_data_folder_that_was_made_anew_is_refused_under_its_old_name() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.level()
        group.c.die()
        group.c.disk = SimDisk(99)
        group.c.begin(group.a.address)
        with trio.fail_after(120.0):
            while group.c.error is None:  # noqa: ASYNC110 (nothing sets an event)
                await trio.sleep(0.1)
        error: BaseException = group.c.error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, InvalidConfig)
        assert "made anew" in str(error)

    in_group(23, scenario)
