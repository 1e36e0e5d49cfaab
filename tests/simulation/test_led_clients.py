"""Native clients of a group of three while its leaders die: nothing acknowledged is lost, and reads go on."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.client.reader import Reader
from penstock.errors import NotLeader, PenstockError, TimedOut, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.nodes import NAMES, SimGroup, in_group

SERVER = f"{NAMES}:9876"


def by(group: SimGroup, name: str, **more: Any) -> dict[str, Any]:
    """How a client reaches the group."""
    simulation = group.simulation
    return {"servers": SERVER, "links": group.links, "clock": simulation.clock, "rng": simulation.rng(name), **more}


async def read_until(consumer: Consumer | Reader, wanted: int, within_s: float = 60.0) -> list[bytes]:
    """Bodies until so many different ones have come."""
    found: list[bytes] = []
    with trio.fail_after(within_s):
        while len(set(found)) < wanted:
            found += [message.body for message in await consumer.poll(5.0)]
    return found


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_producers_and_consumers_go_on_over_three_leaders_that_die(seed: int) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 2))
        sent: list[bytes] = []
        pauses: list[float] = []
        over = trio.Event()

        async def send() -> None:
            async with Producer(**by(group, "producer", timeout_s=60.0)) as producer:
                while not over.is_set():
                    body, began = b"%d" % len(sent), trio.current_time()
                    await producer.send("t", body, key="k")
                    pauses.append(trio.current_time() - began)
                    sent.append(body)
                    await trio.sleep(0.05)

        async with (
            Consumer("g", "t", start="earliest", **by(group, "consumer")) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(send)
            found: list[bytes] = []
            for number in range(3):
                leader = await group.leader()
                at_least = len(sent) + 10
                found += await read_until(consumer, 1)
                leader.die(power=number == 1)
                while len(sent) < at_least:
                    found += [message.body for message in await consumer.poll(0.5)]
                    await consumer.commit()
                leader.begin(*[one.address for one in group.nodes if one is not leader])
                await group.level()
            over.set()
            while set(found) < set(sent):
                found += [message.body for message in await consumer.poll(1.0)]
            assert set(found) == set(sent)
            first = list(dict.fromkeys(found))
            assert first == sorted(first, key=int), "one key's messages come in their order"
        async with Reader("t", until_end=True, **by(group, "reader")) as reader:
            stored = await read_until(reader, len(sent))
        assert sorted(stored, key=int) == sent, "each is stored once"
        assert max(pauses) < 6.0, "a leader's death holds a producer up for seconds"

    in_group(seed, scenario)


def test_a_consumer_reads_the_backlog_at_a_copy_when_the_only_voter_is_gone_for_good() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.until_done(CreateTopic("t", 1))
        async with Producer(**by(group, "producer")) as producer:
            for number in range(200):
                await producer.send("t", b"%d" % number * 100)
        await group.level()
        async with Consumer(
            "g", "t", start="earliest", batch_max=10, prefetch_bytes=1, **by(group, "consumer")
        ) as consumer:
            assert len(await consumer.poll(5.0)) == 10
            group.a.die()
            found = await read_until(consumer, 190)
            assert len(found) >= 190
            with pytest.raises(PenstockError) as refused, trio.fail_after(300):
                await consumer.commit()
            assert refused.value.retryable, "it is stored when there is a leader again"
            late = Consumer("other", "t", timeout_s=10.0, **by(group, "late"))
            with pytest.raises((NotLeader, Unavailable, TimedOut)):
                await late.__aenter__()
            group.a.begin()
            await group.leader()
            with trio.fail_after(60):
                while True:
                    try:
                        await consumer.commit()
                        break
                    except PenstockError:
                        await trio.sleep(0.5)

    in_group(14, scenario)


def test_a_reader_reads_all_while_the_leader_is_gone() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.until_done(CreateTopic("t", 1))
        async with Producer(**by(group, "producer")) as producer:
            await producer.send_many([Message("t", b"%d" % number) for number in range(50)])
        await group.level()
        group.a.die()
        async with Reader("t", until_end=True, timeout_s=60.0, **by(group, "reader")) as reader:
            assert len(await read_until(reader, 50)) == 50

    in_group(15, scenario)
