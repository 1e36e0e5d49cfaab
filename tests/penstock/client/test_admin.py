from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Admin
from penstock.errors import HalfNotFound, InvalidRequest, OutcomeStands, TopicNotFound
from tests.penstock.admin_scene import begin, delay, kill


def test_sleeping_messages_are_seen_and_decided(run: Callable[..., Any], real_cluster: Any) -> None:
    servers = real_cluster.servers
    timer, half = delay(servers, b"1"), begin(servers, b"2")
    kill(servers, b"3")

    async def administer() -> None:
        async with Admin(servers) as admin:
            [delayed], [transaction] = await admin.delayed(), await admin.transactions()
            assert (delayed.id, transaction.id) == (timer.id, half)
            await admin.cancel("", timer.id, timer.due_ms)
            await admin.check("", half)
            await admin.rollback("", half)
            with pytest.raises(OutcomeStands):
                await admin.commit("", half)
            with pytest.raises(HalfNotFound):
                await admin.commit("", 7)
            assert [one.waiting for one in await admin.dead_letters()] == [1]
            assert [one.reason for one in await admin.letters_of("billing")] == ["no way"]
            assert [one.error for one in await admin.redrive("billing")] == [None]

    run(administer)


def test_an_admin_that_is_not_open_says_so(run: Callable[..., Any]) -> None:
    async def unopened() -> None:
        with pytest.raises(InvalidRequest, match="async with Admin"):
            await Admin("127.0.0.1:1").delayed()

    run(unopened)


def test_a_topic_is_deleted(run: Callable[..., Any], real_cluster: Any) -> None:
    begin(real_cluster.servers, b"1")
    kill(real_cluster.servers, b"2")

    async def administer() -> None:
        async with Admin(real_cluster.servers) as admin:
            assert await admin.delete_topic("orders") == {"broker-a": 1}
            with pytest.raises(TopicNotFound):
                await admin.delete_topic("orders")
            await admin.commit("", (await admin.transactions())[0].id)
            assert await admin.delete_topic("orders") == {"broker-a": 1}, "what was on its way makes it again"

    run(administer)
