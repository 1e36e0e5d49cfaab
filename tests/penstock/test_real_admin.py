"""What administrators do, against two real brokers: in both of them, and from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import penstock
from penstock.blocking import Admin, Consumer, Producer, Reader
from penstock.client.administration import Ask, Task
from penstock.client.group_tasks import reset_group
from penstock.errors import BrokerAway, PenstockError, ResetIncomplete
from penstock.protocol.requests.groups import CommitOffsets
from tests.patience import PATIENCE_S


def where(producer: Producer, key: str = "") -> str:
    return producer.send("orders", b"x", key=key).queue.broker


def test_a_broker_in_maintenance_is_gone_round_and_none_of_its_messages_are_lost(two_brokers: Any) -> None:
    servers = two_brokers.servers
    with Admin(servers) as admin, Producer(servers=servers) as producer:
        assert len(admin.create_topic("orders", queues=1)) == 2
        assert {where(producer) for _ in range(8)} == {"broker-a", "broker-b"}
        admin.allow_broker("broker-a", write=False)
        assert {where(producer, key) for key in ("", "", "k1", "k2", "k3", "k4")} == {"broker-b"}
        with Consumer("billing", "orders", servers=servers, start="earliest") as consumer:
            read = 0
            while read < 14:
                read += len(consumer.poll(PATIENCE_S))
            consumer.commit()
        assert [(one.group, one.lag) for one in admin.groups()] == [("billing", 0)]
        admin.allow_broker("broker-a", write=True)
    with Producer(servers=servers) as producer:  # one that was open knows for half a minute what it was told
        assert {where(producer) for _ in range(8)} == {"broker-a", "broker-b"}


def test_a_producer_that_is_open_goes_to_the_other_broker_within_its_attempts(
    run: Callable[..., Any], two_brokers: Any
) -> None:
    async def send() -> None:
        async with (
            penstock.Admin(two_brokers.servers) as admin,
            penstock.Producer(servers=two_brokers.servers) as sender,
        ):
            await admin.create_topic("orders", queues=1)
            seen = {key: (await sender.send("orders", b"x", key=key)).queue.broker for key in ("k1", "k2", "k3", "k4")}
            assert set(seen.values()) == {"broker-a", "broker-b"}
            await admin.allow_broker("broker-a", write=False)
            for key in seen:
                assert (await sender.send("orders", b"x", key=key)).queue.broker == "broker-b"

    run(send)


def test_a_change_and_a_purge_and_a_reset_are_for_all_brokers_and_offsets_go_on(two_brokers: Any) -> None:
    servers = two_brokers.servers
    with Admin(servers) as admin, Producer(servers=servers) as producer:
        admin.create_topic("orders", queues=1)
        for _ in range(8):
            where(producer)
        assert [one.queues for one in admin.change_topic("orders", queues=2, trace_every=1)] == [2, 2]
        assert [one.queues for one in admin.change_topic("orders", queues=3, broker="broker-b")] == [3]
        assert [(one.broker, one.queues) for one in admin.topics()][-2:] == [("broker-a", 2), ("broker-b", 3)]
        moved = admin.reset_group("billing", "orders", to="latest")
        assert sum(one.after for one in moved) == 8
        assert sorted({one.queue.broker for one in moved}) == ["broker-a", "broker-b"]
        assert sum(admin.purge_topic("orders").values()) == 8
        receipt = producer.send("orders", b"new")
        assert all(one.messages <= 1 for one in admin.topic("orders"))
        with Reader("orders", servers=servers, until_end=True) as reader:
            [message] = list(reader.messages())
        assert (message.body, message.queue, message.offset) == (b"new", receipt.queue, receipt.offset)
        stored = admin.message(f"{message.queue.broker}:{message.position}")
        assert (stored.id, stored.offset) == (receipt.id, receipt.offset)
        while not (told := admin.trace(receipt.id)):
            pass
        assert {one.broker for one in told} == {"", message.queue.broker}
        admin.delete_group("billing")
        assert admin.groups() == []


def losing_the_last(task: Task[Any], lose: Callable[[], None]) -> Task[Any]:
    """The same task, but something is lost when it has moved a group at the first broker."""
    commits, step = 0, partial(next, task)
    while True:
        try:
            wanted = step()
        except StopIteration as done:
            return done.value
        if isinstance(wanted, Ask) and isinstance(wanted.request, CommitOffsets):
            commits += 1
            if commits == 2:
                lose()
        try:
            step = partial(task.send, (yield wanted))
        except PenstockError as error:
            step = partial(task.throw, error)


def test_a_group_is_reset_at_all_brokers_or_the_error_says_where_not_and_a_repetition_is_safe(two_brokers: Any) -> None:
    servers, reset = two_brokers.servers, ("billing", "orders")

    def offsets() -> dict[str, int]:
        with Admin(servers) as admin:
            return {one.queue.broker: one.before for one in admin.reset_group(*reset, by=0, dry_run=True)}

    with Admin(servers) as admin, Producer(servers=servers) as producer:
        admin.create_topic("orders", queues=1)
        while min(one.messages for one in admin.topic("orders")) < 3:
            where(producer)
        admin.reset_group(*reset, to="earliest")
    two_brokers.stop_broker("b")
    with Admin(servers) as admin, pytest.raises(BrokerAway, match="broker-b"):
        admin.reset_group(*reset, by=1)
    two_brokers.start_broker("b")
    assert offsets() == {"broker-a": 0, "broker-b": 0}

    with Admin(servers, timeout_s=1) as admin, pytest.raises(ResetIncomplete) as caught:
        admin.run(losing_the_last(reset_group(*reset, by=1), partial(two_brokers.stop_broker, "b")))
    assert "moved at broker-a; not at broker-b: " in caught.value.message
    assert "--broker broker-b" in caught.value.hint
    assert [*caught.value.failures] == ["broker-b"]
    two_brokers.start_broker("b")
    assert offsets() == {"broker-a": 1, "broker-b": 0}
    with Admin(servers) as admin:
        admin.reset_group(*reset, by=1, broker="broker-b")
        assert offsets() == {"broker-a": 1, "broker-b": 1}
        for _ in range(2):
            admin.reset_group(*reset, to=2)
            assert offsets() == {"broker-a": 2, "broker-b": 2}
