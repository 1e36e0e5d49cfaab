"""Open requests at several servers: each ends in exactly one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.blocking import BlockingLink
from penstock.blocking.exchange import Exchange
from penstock.errors import NotLeader, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.service.frame_server import Peer


class Service:
    """Answers Ping; keeps Pull."""

    def __init__(self, peer: Peer) -> None:
        pass

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, Ping):
            on_result(ServerInfo("s", "s", "1"))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Follower(Service):
    """Answers that another node leads."""

    leader = ""

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(NotLeader("it follows", hint=self.leader))


def until(exchange: Exchange, results: list[Result], count: int) -> None:
    for _ in range(100):
        if len(results) >= count:
            return
        exchange.wait(1.0)
    raise AssertionError(results)


def test_answers_of_several_servers_are_dispatched(serve: Callable[..., Any]) -> None:
    exchange, results = Exchange(), list[Result]()
    with BlockingLink(serve(Service).address) as first, BlockingLink(serve(Service).address) as second:
        for link in (first, second):
            exchange.submit(link, [(Ping(), results.append), (Pull("a:0", 0, wait_s=60), results.append)])
        until(exchange, results, 2)
        exchange.wait(0.01)
    assert results == [ServerInfo("s", "s", "1")] * 2


def test_a_call_on_the_same_link_in_between_loses_no_answer(serve: Callable[..., Any]) -> None:
    exchange, results = Exchange(), list[Result]()
    with BlockingLink(serve(Service).address) as link:
        exchange.submit(link, [(Ping(), results.append)])
        link.call(Ping())
        until(exchange, results, 1)


def test_a_lost_connection_ends_every_open_request_once(serve: Callable[..., Any]) -> None:
    exchange, results = Exchange(), list[Result]()
    server = serve(Service)
    link = BlockingLink(server.address)
    exchange.submit(link, [(Pull("a:0", 0, wait_s=60), results.append)] * 3)
    server.stop()
    until(exchange, results, 3)
    exchange.wait(0.01)
    assert [type(result) for result in results] == [Unavailable] * 3
    exchange.submit(link, [(Ping(), results.append)])
    assert isinstance(results[3], Unavailable)


def test_a_link_that_was_closed_by_somebody_else_ends_its_requests_too(serve: Callable[..., Any]) -> None:
    exchange, results = Exchange(), list[Result]()
    link = BlockingLink(serve(Service).address)
    exchange.submit(link, [(Pull("a:0", 0, wait_s=60), results.append)])
    link.close()
    link.call(Ping())
    until(exchange, results, 1)
    assert isinstance(results[0], Unavailable)
    link.close()


def test_what_a_node_refuses_because_another_one_leads_goes_to_that_one_once(serve: Callable[..., Any]) -> None:
    leader, follower = serve(Service).address, serve(Follower).address
    exchange, results = Exchange(), list[Result]()
    links: dict[str, BlockingLink] = {}
    for address in (leader, follower):
        links[address] = BlockingLink(address, leader_at=links.__getitem__)
    Follower.leader = leader
    exchange.submit(links[follower], [(Ping(), results.append)] * 2)
    until(exchange, results, 2)
    assert results == [ServerInfo("s", "s", "1")] * 2
    assert links[follower].call_many([Ping(), Ping()]) == results
    other = serve(Follower).address
    links[other] = BlockingLink(other, leader_at=links.__getitem__)
    Follower.leader = follower  # of each other: nobody knows who leads
    exchange.submit(links[other], [(Ping(), results.append)])
    until(exchange, results, 3)
    assert isinstance(results[2], NotLeader)
    [result] = links[other].call_many([Ping()])
    assert isinstance(result, NotLeader)
    for link in links.values():
        link.close()
