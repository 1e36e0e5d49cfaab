"""Messages by key without blocking: the pages of several brokers become one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.finding import Search, find
from penstock.errors import BrokerAway, InvalidRequest, NoRoute
from penstock.protocol.link import Link
from penstock.protocol.requests.messages import FindByKey
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from tests.penstock.blocking.test_finding import FIRST, Answering, page, paged

Run = Callable[..., Any]
SERVERS = "127.0.0.1:9876"


class Wired:
    """Links to a name server and to brokers that answer at once."""

    def __init__(self, *brokers: Answering, away: tuple[str, ...] = ()) -> None:
        routes = tuple(BrokerRoute(f"b{at}", f"h:{at + 1}", 1) for at in range(len(brokers)))
        self._at = dict(zip([route.address for route in routes], brokers, strict=True))

        def answer(request: QueryRoute) -> Route:
            return Route(routes, away) if request.topic == "orders" else Route(())

        self._at[SERVERS] = Answering(answer)

    def link(self, address: str) -> Link:
        return self._at[address]


def searching(wired: Wired, **given: Any) -> Search:
    return find(given.pop("topic", "orders"), "k", servers=SERVERS, links=wired, **given)


def test_the_newest_of_all_brokers_come_first_over_all_pages(run: Run) -> None:
    one = Answering(paged({FIRST: page(90, 70, following=50), 50: page(following=20), 20: page(10, following=0)}))
    two = Answering(paged({FIRST: page(80, following=7), 7: page(60, following=0)}))

    async def test() -> list[tuple[str, int]]:
        async with searching(Wired(one, two), since=5, until=95) as found:
            return [(message.queue.broker, message.stored_ms) async for message in found]

    assert run(test) == [("b0", 90), ("b1", 80), ("b0", 70), ("b1", 60), ("b0", 10)]
    assert one.asked[0] == FindByKey("orders", "k", 5, 95)


def test_no_page_is_asked_for_that_nobody_wants(run: Run) -> None:
    one = Answering(paged({FIRST: page(90, 70, following=50)}))

    async def test() -> None:
        async with searching(Wired(one)) as found:
            assert [(await anext(found)).stored_ms for _ in range(2)] == [90, 70]

    run(test)
    asked: list[Request] = one.asked
    assert len(asked) == 1


async def test_what_is_not_whole_is_an_error_or_left_out_on_request() -> None:
    there = Answering(paged({FIRST: page(90, following=0)}))
    with pytest.raises(BrokerAway, match="broker b9 is away"):
        async with searching(Wired(there, away=("b9",))):
            pass
    async with searching(Wired(there, away=("b9",)), allow_incomplete=True) as found:
        assert [message.stored_ms async for message in found] == [90]
    with pytest.raises(NoRoute, match="nowhere"):
        async with searching(Wired(there), topic="nowhere"):
            pass


async def test_wrong_use_says_what_is_right() -> None:
    with pytest.raises(InvalidRequest, match="opened by `async with`"):
        searching(Wired()).__enter__()
    with pytest.raises(InvalidRequest, match="this search is not open"):
        await anext(searching(Wired()))
    with pytest.raises(InvalidRequest, match="timeout_s is at least 0 s"):
        searching(Wired(), timeout_s=-1)
