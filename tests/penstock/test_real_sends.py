"""Delayed messages, transactions and the other ways to send against the real name server and broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from penstock import (
    Admin,
    Consumer,
    DelayedReceipt,
    HalfMessage,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    blocking,
)
from penstock.clock import RealClock
from penstock.errors import (
    InvalidRequest,
    InvalidTopic,
    OutcomeStands,
    PenstockError,
    TimerFired,
    TimerNotFound,
)
from tests.patience import PATIENCE_S
from tests.penstock.conftest import RealCluster

Run = Callable[..., Any]
to_thread = anyio.to_thread.run_sync


def check_delayed(receipts: Sequence[DelayedReceipt], began_ms: int, messages: Sequence[ReceivedMessage]) -> None:
    """Of two delayed messages the second was cancelled; the first came when it was due."""
    assert [message.id for message in messages] == [receipts[0].id]
    assert messages[0].stored_ms >= receipts[0].due_ms >= began_ms + 300
    assert began_ms + 3_600_000 <= receipts[1].due_ms <= RealClock().wall_ms() + 3_600_000


def test_a_delayed_message_is_never_early_and_one_that_is_cancelled_never_comes(run: Run, real_cluster: Any) -> None:
    servers = real_cluster.servers

    async def test() -> None:
        async with Producer(servers=servers) as producer:
            await producer.send("orders", b"now", key="k")
            async with Consumer("g", "orders", servers=servers) as consumer:
                began_ms = RealClock().wall_ms()
                receipts = [await producer.send("orders", b"x", key="k", delay=s) for s in (0.3, timedelta(hours=1))]
                await producer.cancel(receipts[1])
                messages = await consumer.poll(PATIENCE_S)
            with pytest.raises(TimerNotFound):
                await producer.cancel(receipts[1])
            with pytest.raises(TimerFired):
                await producer.cancel(receipts[0])
            check_delayed(receipts, began_ms, messages)
            soon = await producer.send("orders", b"at", key="k", at=began_ms)
            assert soon.due_ms >= began_ms
            with pytest.raises(InvalidTopic):
                await producer.send("orders", b"x", mqtt_topic="$SYS/x", delay=1)

    run(test)


def test_delays_are_the_same_in_blocking(real_cluster: Any) -> None:
    servers = real_cluster.servers
    with blocking.Producer(servers=servers) as producer:
        queue = producer.send("orders", b"now", key="k").queue
        with blocking.Consumer("g", "orders", servers=servers) as consumer:
            began_ms = RealClock().wall_ms()
            receipts = [producer.send("orders", b"x", key="k", delay="300ms")]
            receipts += producer.send_many([Message("orders", b"x")], delay=3600)
            producer.cancel(receipts[1])
            messages = consumer.poll(PATIENCE_S)
        with pytest.raises(TimerNotFound):
            producer.cancel(receipts[1])
        with pytest.raises(TimerFired):
            producer.cancel(receipts[0])
        check_delayed(receipts, began_ms, messages)
        assert producer.send("orders", b"x", queue=queue).queue == queue
        assert {
            one.queue for one in producer.send_many([Message("orders", b"x")] * 9, queue=lambda all, one: all[-1])
        } == {MessageQueue(queue.broker, "orders", 3)}
    with pytest.raises(InvalidRequest, match="not open"):
        producer.cancel(receipts[1])


def test_messages_of_a_shard_are_in_one_queue_and_are_found_by_their_keys(real_cluster: Any) -> None:
    servers = real_cluster.servers
    with blocking.Producer(servers=servers) as producer:
        by_shard = {
            shard: {producer.send("orders", b"x", key=f"{shard}-{at}", shard=shard).queue for at in range(8)}
            for shard in ("a", "b", "c", "d")
        }
        assert [len(queues) for queues in by_shard.values()] == [1] * 4
        assert len(set.union(*by_shard.values())) > 1
        assert {producer.send("orders", b"x", key="a").queue} == by_shard["a"], "as a key would"
    assert [message.key for message in blocking.find("orders", "c-3", servers=servers)] == ["c-3"]


# ------------------------------------------------------------ transactions


@pytest.fixture
def quick_checks(tmp_path: Path) -> Iterator[RealCluster]:
    """A broker that asks producers soon."""
    cluster = RealCluster(tmp_path / "data", half_check_after_s=0.05)
    yield cluster
    cluster.stop()


def bodies(servers: str, topic: str = "orders") -> list[bytes]:
    """All that is delivered in a topic."""
    with blocking.Reader(topic, servers=servers, until_end=True) as reader:
        return sorted(message.body for message in reader.messages())


def waiting(servers: str) -> int:
    """Halves without an outcome."""
    with blocking.Admin(servers) as admin:
        return len(admin.transactions())


def test_a_block_that_ends_well_commits_and_any_other_rolls_back(run: Run, real_cluster: Any) -> None:
    servers = real_cluster.servers

    async def test() -> None:
        async with Producer(servers=servers, group="payments") as producer:
            await producer.send("orders", b"plain")
            async with producer.transaction("orders", b"one", key="k", properties={"a": "b"}) as tx:
                assert len(tx.ids) == 1
                assert await to_thread(bodies, servers) == [b"plain"]
            many = [Message("orders", b"two"), Message("bills", b"three", key="k"), Message("orders", b"four")]
            async with producer.transaction(many) as tx:
                assert len(tx.ids) == 1
            with pytest.raises(KeyError, match="mine"):
                async with producer.transaction(many):
                    raise KeyError("mine")
            async with producer.transaction(Message("orders", b"x")) as tx:
                tx.rollback()
            with pytest.raises(InvalidRequest, match="begins only once"):
                await tx.__aenter__()
            async with producer.transaction("orders", b"x") as tx:
                with blocking.Admin(servers) as admin:
                    admin.rollback(*tx.ids[0])
                tx.unknown()
            with pytest.raises(OutcomeStands):
                async with producer.transaction(many) as tx, Admin(servers) as admin:
                    await admin.rollback(*tx.ids[0])

    run(test)
    assert (bodies(servers), bodies(servers, "bills")) == (
        [b"four", b"one", b"plain", b"two"],
        [b"three"],
    )
    assert waiting(servers) == 0


def test_transactions_are_the_same_in_blocking(quick_checks: Any) -> None:
    servers, told = quick_checks.servers, list[bytes]()

    def check(half: HalfMessage) -> Any:
        told.append(half.body)
        if half.body == b"raises":
            raise KeyError("mine")
        return {b"committed": "commit", b"nonsense": 7}.get(half.body, "rollback")

    with blocking.Producer(servers=servers, group="payments", check=check) as producer:
        with producer.transaction("orders", b"one", key="k"):
            assert bodies(servers) == []
        with pytest.raises(KeyError, match="mine"), producer.transaction([Message("orders", b"x")] * 2):
            raise KeyError("mine")
        with producer.transaction(Message("orders", b"x")) as tx:
            tx.rollback()
        with pytest.raises(OutcomeStands), producer.transaction("orders", b"x") as tx, blocking.Admin(servers) as admin:
            admin.rollback(*tx.ids[0])
        for body in (b"committed", b"raises", b"nonsense", b"rolled back"):
            with producer.transaction("orders", body) as tx:
                tx.unknown()
        count = 0
        while waiting(servers) > 2 or told.count(b"raises") < 2 or told.count(b"nonsense") < 2:
            count += producer.answer_checks(1.0)
        assert count == len(told)
    assert bodies(servers) == [b"committed", b"one"]
    with blocking.Producer(servers=servers) as producer:
        for use in (lambda: producer.transaction("orders", b"x"), producer.answer_checks):
            with pytest.raises(InvalidRequest, match=r"Producer\(group=\.\.\., check=\.\.\.\)"):
                use()


def test_a_listener_settles_what_was_left_and_is_asked_again_where_it_fails(run: Run, quick_checks: Any) -> None:
    servers, told = quick_checks.servers, list[HalfMessage]()

    async def check(half: HalfMessage) -> Any:
        asked = sum([one.id == half.id for one in told])
        told.append(half)
        if asked == 0 and half.body == b"raises":
            raise KeyError("mine")
        if asked == 0 and half.body == b"hangs":
            await anyio.sleep_forever()
        verdicts = {b"rolled back": "rollback", b"nonsense": None if asked == 0 else "commit"}
        return "unknown" if half.body == b"unknown" and asked < 3 else verdicts.get(half.body, "commit")

    async def test() -> None:
        left = [b"raises", b"hangs", b"nonsense", b"rolled back", b"unknown"]
        async with Producer(servers=servers, group="payments") as producer:
            for body in left:
                async with producer.transaction("orders", body, key="k", properties={"a": "b"}) as tx:
                    tx.unknown()
        async with Producer(servers=servers, group="payments", check=check, check_s=0.05) as producer:
            async with producer.transaction("orders", b"open"):
                with anyio.fail_after(PATIENCE_S):
                    while await to_thread(waiting, servers) > 1:  # noqa: ASYNC110 - the broker has no event to show
                        await anyio.sleep(0.01)
            await producer.send("bills", b"x")

    run(test)
    assert bodies(servers) == [b"hangs", b"nonsense", b"open", b"raises", b"unknown"]
    assert b"open" not in [half.body for half in told], "its own block decides"
    first = next(half for half in told if half.body == b"raises")
    assert (first.topic, first.key, dict(first.properties), first.broker) == ("orders", "k", {"a": "b"}, "broker-a")
    assert [half.checks for half in told if half.body == b"raises"] == [1, 2]


@pytest.mark.interpreted
def test_what_cannot_begin_raises_and_leaves_nothing(run: Run, real_cluster: Any) -> None:
    servers = real_cluster.servers
    bad = [Message("orders", b"x"), Message("orders", b"x", mqtt_topic="$SYS/x")]

    async def test() -> None:
        async with Producer(servers=servers, group="payments") as producer:
            with pytest.raises(InvalidTopic):
                async with producer.transaction(bad):
                    raise AssertionError("the block is not carried out")
            for given in ([], ["x"]):
                with pytest.raises(PenstockError):
                    async with producer.transaction(given):  # type: ignore[arg-type]
                        pass
        async with Producer(servers=servers) as producer:
            with pytest.raises(InvalidRequest, match="a transaction needs a producer group"):
                producer.transaction("orders", b"x")
        for wrong in ({"group": 5}, {"check": check}, {"group": "g", "check": 5}):
            with pytest.raises(InvalidRequest):
                Producer(servers=servers, **wrong)

    async def check(half: HalfMessage) -> Any:
        return "commit"

    run(test)
    with (
        blocking.Producer(servers=servers, group="payments") as producer,
        pytest.raises(InvalidTopic),
        producer.transaction(bad),
    ):
        raise AssertionError("the block is not carried out")
    assert waiting(servers) == 0
