"""What every link promises, over the wire and in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from penstock.client.wire_link import WireLinks, ask, call
from penstock.errors import InvalidTopic, TimedOut
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.messages import Append, Appended, Pull
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.topics import CreateTopic
from penstock.service.frame_server import Peer


class Service:
    """Answers at the end of each batch, in the order of arrival; refuses CreateTopic; keeps Pull for ever."""

    def __init__(self) -> None:
        self.batches: list[list[Request]] = []
        self._ready: list[tuple[OnResult, Result]] = []
        self._batch: list[Request] = []

    def __call__(self, peer: Peer) -> Service:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._batch.append(request)
        if isinstance(request, Append):
            self._ready.append((on_result, Appended("disk" if bytes(request.body) else "cache")))
        elif isinstance(request, CreateTopic):
            self._ready.append((on_result, InvalidTopic(request.topic, hint="try another")))
        elif isinstance(request, Ping):
            self._ready.append((on_result, ServerInfo("s", "s", "1")))

    def flush(self) -> None:
        self.batches.append(self._batch)
        self._batch = []
        ready, self._ready = self._ready, []
        for on_result, result in ready:
            on_result(result)

    def close(self) -> None:
        pass


class Local:
    def __init__(self, service: Service) -> None:
        self.service = service

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        yield self.service


class Wire:
    def __init__(self, service: Service, address: str) -> None:
        self.service = service
        self._address = address

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        async with anyio.create_task_group() as tasks:
            yield WireLinks(tasks).link(self._address)
            tasks.cancel_scope.cancel()


@pytest.fixture(params=["same process", "wire"])
def way(request: pytest.FixtureRequest, serve: Callable[..., Any]) -> Local | Wire:
    service = Service()
    return Local(service) if request.param == "same process" else Wire(service, serve(service).address)


def test_a_call_returns_the_reply(way: Local | Wire, run: Callable[..., Any]) -> None:
    async def test() -> None:
        async with way.link() as link:
            assert await call(link, Append(1, False, b"x")) == Appended("disk")
            assert (await ask(link, Ping(), ServerInfo)).role == "s"

    run(test)


def test_an_error_is_raised_with_its_hint(way: Local | Wire, run: Callable[..., Any]) -> None:
    async def test() -> None:
        async with way.link() as link:
            with pytest.raises(InvalidTopic, match=r"bad \(try another\)"):
                await call(link, CreateTopic("bad"))

    run(test)


def test_every_call_has_a_deadline(way: Local | Wire, run: Callable[..., Any]) -> None:
    async def test() -> None:
        async with way.link() as link:
            with pytest.raises(TimedOut) as caught:
                await call(link, Pull("a:0", 0), timeout_s=0.02)
            assert caught.value.unknown
            assert await call(link, Ping()) == ServerInfo("s", "s", "1")

    run(test)


def test_what_is_submitted_between_two_flushes_arrives_as_one_batch_in_order(
    way: Local | Wire, run: Callable[..., Any]
) -> None:
    async def test() -> None:
        async with way.link() as link:
            await call(link, Ping())
            results: list[Result] = []
            for at in range(100):
                link.submit(CreateTopic(str(at)), results.append)
            link.flush()
            await call(link, Ping())
            assert [str(result) for result in results] == [f"{at} (try another)" for at in range(100)]

    run(test)
    sent = [request for batch in way.service.batches for request in batch]
    assert [request.topic for request in sent if isinstance(request, CreateTopic)] == [str(at) for at in range(100)]
    assert len(way.service.batches) <= 4
