"""The clients against the real name server and broker, over TCP, on asyncio, on trio and blocking."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import penstock
from penstock import Consumer, Message, Producer, Reader, blocking
from penstock.client.sending import Receipt
from penstock.errors import Fenced, InvalidRequest, PenstockError, SendManyError, TooLarge
from penstock.protocol.compression import Compression
from penstock.protocol.requests.groups import FetchOffsets, GroupOffsets
from tests.patience import PATIENCE_S

Run = Callable[..., Any]


def numbered(count: int) -> list[Message]:
    return [Message("orders", str(at).encode(), key=str(at % 50)) for at in range(count)]


def test_what_one_sends_a_group_of_two_reads_exactly_once(run: Run, real_cluster: Any) -> None:
    seen: Counter[bytes] = Counter()

    async def read(consumer: Consumer, all_seen: anyio.Event) -> None:
        while not all_seen.is_set():
            seen.update(message.body for message in await consumer.poll(0.05))
            await consumer.commit()
            if seen.total() >= 2000:
                all_seen.set()

    def member() -> Consumer:
        return Consumer("g", "orders", servers=real_cluster.servers)

    async def test() -> None:
        with blocking.bootstrap(real_cluster.servers) as routes:
            routes.find_or_create("orders")
        async with Producer(servers=real_cluster.servers) as producer, member() as first, member() as second:
            with anyio.fail_after(PATIENCE_S):
                while len(first.assignment) != 2:  # noqa: ASYNC110 - the rebalance has no event to show
                    await anyio.sleep(0.001)
                async with anyio.create_task_group() as tasks:
                    all_seen = anyio.Event()
                    tasks.start_soon(read, first, all_seen)
                    tasks.start_soon(read, second, all_seen)
                    for at in range(0, 2000, 500):
                        await producer.send_many(numbered(2000)[at : at + 500])

    run(test)
    assert seen == Counter({str(at).encode(): 1 for at in range(2000)})


def test_messages_of_one_key_keep_their_order(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            for at in range(100):
                await producer.send("orders", str(at).encode(), key="device-7")
        async with Reader("orders", servers=real_cluster.servers, until_end=True) as reader:
            assert [int(message.body) async for message in reader.messages()] == list(range(100))

    run(test)


def test_a_member_that_comes_takes_queues_and_uncommitted_work_is_fenced(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            await producer.send_many(numbered(200))
        async with Consumer("g", "orders", servers=real_cluster.servers, start="earliest") as first:
            got = 0
            while got < 200:
                got += len(await first.poll(5))
            async with Consumer("g", "orders", servers=real_cluster.servers, start="earliest") as second:
                with pytest.raises(Fenced):
                    await first.commit()
                again = 0
                while again < 200 - sum([await committed(real_cluster, queue.name) for queue in first.assignment]):
                    again += len(await second.poll(5))
                await second.commit()
            total = sum([await committed(real_cluster, f"orders:{queue}") for queue in range(4)])
            assert total == 200

    async def committed(cluster: Any, queue: str) -> int:
        def ask() -> int:
            with blocking.bootstrap(cluster.servers) as routes:
                link = routes.link(routes.brokers()[0].address)
                offsets = link.ask(FetchOffsets("g", (queue,)), GroupOffsets)
                return max(0, offsets.offsets[0].offset)

        return await anyio.to_thread.run_sync(ask)

    run(test)


def test_latest_sees_what_is_sent_after_entering(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            await producer.send("orders", b"old")
            async with Consumer("g", "orders", servers=real_cluster.servers) as consumer:
                await producer.send("orders", b"new")
                assert [message.body for message in await consumer.poll(10)] == [b"new"]

    run(test)


def test_the_blocking_clients_do_the_same(real_cluster: Any) -> None:
    with blocking.Producer(servers=real_cluster.servers) as producer:
        receipts = producer.send_many(numbered(300))
    assert {receipt.level for receipt in receipts} == {"disk"}
    with blocking.Consumer("g", "orders", servers=real_cluster.servers, start="earliest") as consumer:
        bodies: list[bytes] = []
        while len(bodies) < 300:
            bodies += [message.body for message in consumer.poll(5)]
        consumer.commit()
        consumer.seek(consumer.assignment[0], "earliest")
        assert consumer.poll(5)
    assert sorted(map(int, bodies)) == list(range(300))
    with blocking.Reader("orders", servers=real_cluster.servers, until_end=True) as reader:
        assert sum(len(batch) for batch in reader) == 300


@pytest.mark.parametrize("compression", ["zstd", "lz4", "zlib"])
def test_large_bodies_are_stored_compressed_and_come_as_they_were(
    run: Run, real_cluster: Any, compression: Compression
) -> None:
    body = b"a line of a log\n" * 1000
    messages = [
        Message("orders", body, key="k"),
        Message("orders", b"small"),
        Message(body=body, mqtt_topic="orders/a"),
    ]

    async def test() -> None:
        async with Producer(servers=real_cluster.servers, compression=compression) as producer:
            await producer.send_many(messages)
        async with Reader("orders", servers=real_cluster.servers, until_end=True) as reader:
            found = [message async for message in reader.messages()]
        assert Counter(message.body for message in found) == {body: 2, b"small": 1}
        stored = {(message.name, message.key): message.stored_bytes for message in found}
        assert stored.pop(("orders", "k")) < len(body) // 10
        assert sorted(stored.values()) == [5, len(body)], "not what devices see"
        with blocking.Reader("orders", servers=real_cluster.servers, until_end=True) as plain:
            assert Counter(message.body for batch in plain for message in batch) == {body: 2, b"small": 1}

    run(test)


def test_an_illegal_topic_is_refused_with_what_is_wrong(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S) as producer:
            with pytest.raises(PenstockError) as caught:
                await producer.send("no/topic", b"x")
            assert not caught.value.unknown
            assert not caught.value.retryable

    run(test)


def test_public_names_load_on_first_use_only() -> None:
    code = (
        "import sys, penstock.protocol.wire, penstock.protocol.message\n"
        "before = {'trio', 'anyio'} & sys.modules.keys()\n"
        "from penstock import Producer\n"
        "print(sorted(before), 'anyio' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[] True\n"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name).__name__ == name
    assert set(penstock.__all__) <= set(dir(penstock))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        penstock.Nonsense  # noqa: B018


def check_receipts_of_all_but_one(error: SendManyError, count: int, large: int) -> None:
    """Only the message at ``large`` has none, and an error of its own."""
    assert [at for at, one in enumerate(error.receipts) if one is None] == [large]
    assert isinstance(error.failures[large], TooLarge)
    assert "does not fit a segment" in str(error.failures[large])
    places = {(one.queue, one.offset) for one in error.receipts if isinstance(one, Receipt)}
    assert len(places) == count - 1


def with_a_large_one() -> list[Message]:
    """Several batches, of which each is larger than a small segment; and one message that is."""
    messages = [Message("orders", b"%06d" % at + bytes(1000), key=str(at % 50)) for at in range(3000)]
    return [*messages[:1500], Message("orders", bytes(70_000)), *messages[1500:]]


def test_batches_that_do_not_fit_a_segment_have_all_their_receipts(run: Run, small_segments: Any) -> None:
    async def test() -> None:
        async with Producer(servers=small_segments.servers) as producer:
            assert len(await producer.send_many(with_a_large_one()[:1500])) == 1500
            with pytest.raises(SendManyError) as failed:
                await producer.send_many(with_a_large_one())
            check_receipts_of_all_but_one(failed.value, 3001, 1500)

    run(test)


def test_a_blocking_producer_has_all_its_receipts_too(small_segments: Any) -> None:
    with blocking.Producer(servers=small_segments.servers) as producer:
        assert len(producer.send_many(with_a_large_one()[:1500])) == 1500
        with pytest.raises(SendManyError) as failed:
            producer.send_many(with_a_large_one())
        check_receipts_of_all_but_one(failed.value, 3001, 1500)


def levels(count: int) -> list[Message]:
    return [Message("orders", str(at).encode(), properties={"level": str(at)}) for at in range(count)]


def test_a_filter_is_applied_by_the_broker_for_readers_and_groups(run: Run, real_cluster: Any) -> None:
    servers, wanted = real_cluster.servers, {str(at).encode() for at in range(90, 100)}

    async def test() -> None:
        async with Producer(servers=servers) as producer:
            await producer.send_many(levels(100))
        async with Reader("orders", servers=servers, until_end=True, filter="level >= 90") as reader:
            assert {message.body async for message in reader.messages()} == wanted
        seen: set[bytes] = set()
        async with Consumer("g", "orders", servers=servers, start="earliest", filter="level >= 90") as consumer:
            with anyio.fail_after(PATIENCE_S):
                while len(seen) < len(wanted):
                    seen |= {message.body for message in await consumer.poll(5)}
            await consumer.commit()
            with pytest.raises(InvalidRequest, match=r"level >= 90.*level >= 80"):
                async with Consumer("g", "orders", servers=servers, filter="level >= 80"):
                    pass
            async with Consumer("g", "orders", servers=servers, filter="level >= 80", force=True) as other:
                assert other.assignment
        assert seen == wanted

    run(test)


def test_filters_and_strategies_are_the_same_in_blocking(real_cluster: Any) -> None:
    servers = real_cluster.servers
    with blocking.Producer(servers=servers) as producer:
        producer.send_many(levels(100))
    with blocking.Reader("orders", servers=servers, until_end=True, filter="level < 5") as reader:
        assert {message.body for message in reader.messages()} == {b"0", b"1", b"2", b"3", b"4"}
        queue = reader.queues[0]
    with blocking.Consumer("one", "orders", servers=servers, strategy="configured", queues=[queue]) as consumer:
        assert consumer.assignment == (queue,)
    with blocking.Consumer("g", "orders", servers=servers, start="earliest", filter="level = 7") as consumer:
        assert [message.body for message in consumer.poll(20)] == [b"7"]
        with (
            pytest.raises(InvalidRequest, match="no filter"),
            blocking.Consumer("g", "orders", servers=servers),
        ):
            pass


def test_what_is_given_back_comes_again_under_its_topic_and_ends_as_a_dead_letter(run: Run, real_cluster: Any) -> None:
    told: list[tuple[bytes, str, str, int]] = []

    async def test() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            await producer.send("orders", b"bad", mqtt_topic="orders/7", tag="paid")
        with anyio.fail_after(PATIENCE_S):
            async with Consumer(
                "g", "orders", servers=real_cluster.servers, start="earliest", tags="paid", attempts_max=3
            ) as consumer:
                async for message in consumer.messages():
                    told.append((message.body, message.topic, message.name, message.attempts))
                    sent = await consumer.nack(message, 0, reason=f"attempt {message.attempts}")
                    await consumer.commit()
                    if not sent.due_ms:
                        break
        async with Reader("%DLQ%g", servers=real_cluster.servers, until_end=True) as letters:
            found = [message async for message in letters.messages()]
        assert [(one.body, one.properties["REASON"]) for one in found] == [(b"bad", "attempt 2")]

    run(test)
    assert told == [(b"bad", "orders", "orders/7", attempts) for attempts in range(3)]


def test_the_first_message_that_a_group_gives_back_comes_again_once(real_cluster: Any) -> None:
    """The topic of its retries is made by that, and the assignment that names it is older than the commit."""
    with blocking.Producer(servers=real_cluster.servers) as producer:
        producer.send("orders", b"bad")
    seen: list[tuple[str, int]] = []
    with blocking.Consumer("g", "orders", servers=real_cluster.servers, start="earliest", attempts_max=3) as consumer:
        while not seen or seen[-1][1] < 2:
            for message in consumer.poll(1):
                seen.append((message.queue.topic, message.attempts))
                consumer.nack(message, 0)
            consumer.commit()
    assert seen == [("orders", 0), ("%RETRY%g", 1), ("%RETRY%g", 2)]
