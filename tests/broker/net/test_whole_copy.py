"""A new node gets all of a log that begins late."""

from __future__ import annotations

from broker.store.segment import segment_path
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.nodes import SimGroup, in_group

KEPT = 300_000


def test_a_node_that_joins_after_retention_has_removed_the_beginning_gets_a_whole_copy() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a", retention_bytes=KEPT)
        await group.until_done(CreateTopic("t", 1))
        await group.level()
        group.c.die()
        for number in range(60):
            await group.send(f"{number:04}" * 2_500)
        await group.level()
        assert segment_path(0) not in group.logs()[0]
        group.c.begin(group.a.address, retention_bytes=KEPT)
        await group.level()
        logs = group.logs()
        common = set(logs[0]) & set(logs[2])
        assert common
        assert all([logs[0][path] == logs[2][path] for path in common])
        assert max(logs[0]) in common

    in_group(31, scenario)
