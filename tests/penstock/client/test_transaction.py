"""A transaction's block where brokers fail: what is begun, what is raised, what is left to the check."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from penstock.client.producer import Producer
from penstock.errors import Busy, HalfNotFound, InternalError, InvalidRequest, PenstockError, TimedOut, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.transactions import (
    BeginHalf,
    EndHalves,
    HalfBegun,
    HalfEnded,
    HalvesEnded,
)
from tests.penstock.hand_clock import TrioClock
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster

Run = Callable[..., Any]


def lost() -> Unavailable:
    error = Unavailable("lost")
    error.unknown = True
    return error


def cluster_of(begins: Iterable[PenstockError] = (), ends: Iterable[PenstockError] = ()) -> LinkedCluster:
    """A broker that refuses with these errors first."""
    cluster = LinkedCluster(topics=["orders"])
    errors = {BeginHalf: iter(begins), EndHalves: iter(ends)}
    cluster.brokers[0].refuse = lambda request: next(errors.get(type(request), iter(())), None)
    return cluster


def asked(broker: LinkedBroker) -> list[str]:
    """Which halves were begun and ended, in short: by numbers in place of their ids."""
    told, numbers = [], dict[int, int]()
    for one in broker.asked:
        if isinstance(one, BeginHalf):
            told.append(f"begin {one.count}")
        elif isinstance(one, EndHalves):
            told.append(" ".join([f"{row.outcome} {numbers.setdefault(row.id, len(numbers))}" for row in one.outcomes]))
    return told


async def transact(cluster: LinkedCluster, *, fails: bool = False, idempotent: bool = True, **given: Any) -> None:
    links: Any = {"servers": LinkedCluster.SERVERS, "links": cluster, "timeout_s": 7, "clock": TrioClock()}
    links["idempotent"] = idempotent
    async with Producer(**links, group="payments") as producer, producer.transaction("orders", b"x", **given):
        if fails:
            raise KeyError("mine")


async def test_a_begin_that_was_refused_for_certain_is_tried_again_and_a_commit_until_it_is_answered() -> None:
    cluster = cluster_of([Busy("full"), Unavailable("not yet")], [lost(), Busy("full")])
    await transact(cluster)
    assert asked(cluster.brokers[0]) == ["begin 1"] * 3 + ["commit 0"] * 3


async def test_a_begin_whose_answer_was_lost_is_tried_again_if_the_broker_knows_its_messages() -> None:
    cluster = cluster_of([lost()])
    await transact(cluster)
    assert asked(cluster.brokers[0]) == ["begin 1", "begin 1", "commit 0"]
    first, second = [one for one in cluster.brokers[0].asked if isinstance(one, BeginHalf)]
    assert first.body == second.body
    cluster = cluster_of([lost()])
    with pytest.raises(Unavailable) as caught:
        await transact(cluster, idempotent=False)
    assert caught.value.unknown
    assert asked(cluster.brokers[0]) == ["begin 1"]


@pytest.mark.parametrize(
    ("error", "kind"), [(lost(), Unavailable), (Unavailable("never sent"), Unavailable), (None, TimedOut)]
)
async def test_a_commit_without_an_answer_is_unknown(error: PenstockError | None, kind: type[PenstockError]) -> None:
    cluster = cluster_of(ends=itertools.repeat(error) if error else ())
    cluster.brokers[0].silent = lambda request: error is None and isinstance(request, EndHalves)
    began = trio.current_time()
    with pytest.raises(kind, match="may be committed") as caught:
        await transact(cluster)
    assert caught.value.unknown
    assert trio.current_time() - began <= 7


async def test_a_refused_commit_is_its_own_error_and_one_that_is_forgotten_is_unknown() -> None:
    for refusal, unknown in ((InternalError("no"), False), (HalfNotFound("ended long ago"), True)):
        cluster = cluster_of()
        cluster.brokers[0].answers[EndHalves] = lambda request, refusal=refusal: HalvesEnded(
            (HalfEnded(request.outcomes[0].id, "", refusal.code, refusal.message),)
        )
        with pytest.raises(type(refusal), match=refusal.message) as caught:
            await transact(cluster)
        assert caught.value.unknown is unknown


async def test_a_rollback_without_an_answer_hides_no_error_and_does_not_hold_up_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_of()
    cluster.brokers[0].silent = lambda request: isinstance(request, EndHalves)
    began = trio.current_time()
    with pytest.raises(KeyError, match="mine"):
        await transact(cluster, fails=True)
    assert trio.current_time() - began == 2
    cluster = cluster_of(ends=itertools.repeat(InternalError("no")))
    with pytest.raises(KeyError, match="mine"):
        await transact(cluster, fails=True)
    assert caplog.messages[-1] == "a rollback is left to the check: no"


async def test_a_cancelled_block_is_rolled_back() -> None:
    cluster = cluster_of()
    links: Any = {"servers": LinkedCluster.SERVERS, "links": cluster}
    async with Producer(**links, group="payments") as producer:
        with trio.move_on_after(1):
            async with producer.transaction("orders", b"x"):
                await trio.sleep_forever()
    assert asked(cluster.brokers[0]) == ["begin 1", "rollback 0"]


async def test_where_messages_cannot_begin_at_one_broker_those_at_the_others_are_rolled_back() -> None:
    cluster = LinkedCluster(brokers=2, topics=["orders"])
    refused = HalfBegun(0, (Refused(1, InternalError.code, "no"),))
    cluster.brokers[1].answers[BeginHalf] = lambda request: refused
    links: Any = {"servers": LinkedCluster.SERVERS, "links": cluster}
    many = [Message("orders", b"x", key=str(at)) for at in range(20)]
    async with Producer(**links, group="payments") as producer:
        with pytest.raises(InternalError, match="no"):
            async with producer.transaction(many):
                raise AssertionError("the block is not carried out")
    [begin, rollback] = asked(cluster.brokers[0])
    assert (begin.partition(" ")[0], rollback) == ("begin", "rollback 0")
    assert len(asked(cluster.brokers[1])) == 1


async def test_a_block_that_was_not_entered_cannot_be_left() -> None:
    async with Producer(servers=LinkedCluster.SERVERS, links=cluster_of(), group="g") as producer:
        with pytest.raises(InvalidRequest, match="has not begun"):
            await producer.transaction("orders", b"x").__aexit__(None, None, None)
