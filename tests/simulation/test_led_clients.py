"""Native clients of a group of three while its leaders die: nothing acknowledged is lost, and reads go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from broker.store.message_store import MessageStore
from penstock.client import pulling
from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.client.reader import Reader
from penstock.errors import NotLeader, PenstockError, TimedOut, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.topics import CreateTopic
from tests.simulation.nodes import CLIENT, NAMES, GroupMember, SimGroup, in_group

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
                    receipt = await producer.send("t", body, key="k")
                    assert receipt.level == "quorum", "on a majority of the disks, whoever leads"
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
            await trio.sleep(5.0)  # what is under way comes to its end
            await group.level()
            states = group.states()
            assert states[0] == states[1] == states[2], "one log, one state: offsets, numbers of producers, topics"
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


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_far_behind_is_pulled_from_a_copy_and_from_the_leader_where_that_cannot_serve(dies: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        async with Producer(**by(group, "producer")) as producer:
            await producer.send_many([Message("t", b"%d" % number) for number in range(200)])
        await group.level()
        leader = await group.leader()
        at: list[str] = []

        def note(node: GroupMember, store: MessageStore) -> Callable[..., Any]:
            read = store.read

            def noted(*arguments: Any) -> Any:
                at.append(node.name)
                return read(*arguments)

            return noted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulling, "FAR_BEHIND", 50)
            for node in group.nodes:
                assert node.running is not None
                store = node.running.lead._store
                patch.setattr(store, "read", note(node, store))
            async with Reader("t", until_end=True, batch_max=2, prefetch_bytes=1, **by(group, "reader")) as reader:
                found = [message.body for message in await reader.poll(5.0)]
                for node in group.nodes:
                    if dies and node is not leader:
                        group.simulation.network.cut(CLIENT, node.host)
                while len(found) < 200:
                    found += [message.body for message in await reader.poll(30.0)]
        assert found == [b"%d" % number for number in range(200)]
        assert at[0] == leader.name, "how far it is behind is known by the first answer"
        assert at[-1] == leader.name, "what is near the end"
        if not dies:
            assert at.count(leader.name) < len(at) / 2

    in_group(16, scenario)


@pytest.mark.parametrize("power", [False, True])
def test_a_new_leader_wakes_what_sleeps_and_ends_the_transactions_that_another_began(power: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 2))
        async with Producer(**by(group, "producer", timeout_s=60.0), group="pay") as producer:
            woken_at = trio.current_time() + 20.0
            await producer.send(Message("t", b"asleep"), delay=20.0)
            async with producer.transaction([Message("t", b"committed"), Message("t", b"too")]):
                leader = await group.leader()
                leader.die(power=power)
            with pytest.raises(RuntimeError, match="no"):
                async with producer.transaction(Message("t", b"rolled back")):
                    raise RuntimeError("no")
            assert await group.leader() is not leader
            async with Reader("t", **by(group, "reader", start="earliest", timeout_s=60.0)) as reader:
                found = await read_until(reader, 3)
                assert trio.current_time() >= woken_at, "not before its time"
                found += [message.body for message in await reader.poll(10.0)]
        assert sorted(found) == [b"asleep", b"committed", b"too"]

    in_group(16, scenario)


def test_clients_go_on_where_another_leads_while_no_name_server_answers() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        async with (
            Producer(**by(group, "producer", timeout_s=60.0)) as producer,
            Reader("t", **by(group, "reader", start="earliest", timeout_s=60.0)) as reader,
        ):
            await producer.send("t", b"before")
            assert await read_until(reader, 1) == [b"before"]
            await group.level()
            network = group.simulation.network
            for host in group.hosts - {NAMES}:
                network.cut(NAMES, host)
            network.kill(NAMES)
            leader = await group.leader()
            leader.die()
            await producer.send("t", b"after")
            assert await read_until(reader, 1) == [b"after"]
            assert await group.leader() is not leader

    in_group(17, scenario)


def test_a_group_of_five_goes_on_without_two_and_stops_without_three() -> None:
    async def scenario(group: SimGroup) -> None:
        group.grow("de")
        await group.begin(voters="abcde")
        await group.until_done(CreateTopic("t", 1))
        async with Producer(**by(group, "producer", timeout_s=60.0)) as producer:
            await producer.send("t", b"five")
            await group.level()
            (await group.leader()).die()
            (await group.leader()).die(power=True)
            assert (await producer.send("t", b"three")).level == "quorum"
            (await group.leader()).die()
            with pytest.raises(PenstockError):
                await producer.send("t", b"two", timeout_s=20.0)
            dead = next(one for one in group.nodes if not one.is_alive)
            dead.begin(*[one.address for one in group.nodes if one.is_alive])
            await producer.send("t", b"three again")
        async with Reader("t", until_end=True, **by(group, "late", timeout_s=60.0)) as reader:
            found = await read_until(reader, 3)
        assert [one for one in found if one != b"two"] == [b"five", b"three", b"three again"]

    in_group(18, scenario)
