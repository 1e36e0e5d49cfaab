from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from penstock import Consumer, Producer, blocking
from penstock.client import requesting
from penstock.errors import InvalidRequest, TimedOut
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters
from penstock.protocol.requests.request import Done
from tests.patience import PATIENCE_S

Run = Callable[..., Any]


async def answer(servers: str, count: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """A service that answers so many requests with what they say twice."""
    async with (
        Producer(servers=servers, timeout_s=PATIENCE_S) as producer,
        Consumer("answering", "questions", servers=servers, start="earliest") as consumer,
    ):
        task_status.started()
        async for message in consumer.messages():
            await producer.reply(message, message.body * 2)
            count -= 1
            if not count:
                return


def test_a_service_answers_many_requests_at_once(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        found: dict[int, bytes] = {}
        async with Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S) as producer:

            async def ask(number: int) -> None:
                reply = await producer.request("questions", b"%d," % number, key=str(number))
                found[number] = reply.body

            async with anyio.create_task_group() as tasks:
                await tasks.start(answer, real_cluster.servers, 40)
                for number in range(40):
                    tasks.start_soon(ask, number)
        assert found == {number: b"%d,%d," % (number, number) for number in range(40)}

    run(test)


def test_a_request_without_a_reply_ends_in_time_and_the_next_one_is_not_mistaken(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S) as producer:
            with pytest.raises(TimedOut, match="no reply within"):
                await producer.request("questions", b"early", timeout_s=0.5)
            async with anyio.create_task_group() as tasks:
                await tasks.start(answer, real_cluster.servers, 2)
                assert (await producer.request("questions", b"late")).body == b"latelate"
            with pytest.raises(InvalidRequest, match="wants no reply"):
                await producer.reply(await producer_echo(real_cluster.servers), b"x")

    run(test)


async def producer_echo(servers: str) -> Any:
    """A message that is no request."""
    async with Producer(servers=servers) as producer:
        await producer.send("plain", b"x")
    async with Consumer("plain", "plain", servers=servers, start="earliest") as consumer:
        [message] = await consumer.poll(PATIENCE_S)
        return message


def test_a_queue_of_replies_that_was_closed_is_opened_again(
    run: Run, real_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requesting, "POLL_S", 0.2)

    def close(name: str, owner: str) -> None:
        with blocking.bootstrap(real_cluster.servers) as routes:
            routes.link(routes.brokers()[0].address).ask(CloseFilters(owner, (name,)), Done)

    async def test() -> None:
        producing = Producer(servers=real_cluster.servers, timeout_s=PATIENCE_S)
        async with producing as producer, anyio.create_task_group() as tasks:
            await tasks.start(answer, real_cluster.servers, 2)
            assert (await producer.request("questions", b"1")).body == b"11"
            requests = producer._requests
            await anyio.to_thread.run_sync(close, requests._name, requests._owner)
            with pytest.raises(TimedOut):
                await producer.request("nobody", b"hears", timeout_s=1)
            assert (await producer.request("questions", b"2")).body == b"22"

    run(test)


def test_a_program_may_not_say_where_the_reply_goes(run: Run, real_cluster: Any) -> None:
    async def test() -> None:
        async with Producer(servers=real_cluster.servers) as producer:
            with pytest.raises(InvalidRequest, match="are the producer's"):
                await producer.request(Message("questions", b"x", reply_to="mine"))

    run(test)
