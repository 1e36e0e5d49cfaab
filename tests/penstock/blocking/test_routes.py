"""Blocking routes against name servers in threads that know different things or are not there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import Routes, bootstrap
from penstock.errors import (
    BrokerAway,
    InvalidConfig,
    InvalidTopic,
    NoRoute,
    TopicNotFound,
    Unavailable,
    UnknownRequest,
)
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, QueryTopics, Route, TopicNames
from penstock.service.frame_server import Peer
from tests.penstock.linked_cluster import LinkedCluster

ORDERS = BrokerRoute("a", "127.0.0.1:1", 4)


class Names:
    """A name server that knows fixed topics."""

    def __init__(self, topics: dict[str, BrokerRoute]) -> None:
        self._topics = topics

    def __call__(self, peer: Peer) -> Names:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, QueryTopics):
            on_result(TopicNames(tuple(sorted(self._topics))))
        elif isinstance(request, QueryRoute):
            found = [route for topic, route in self._topics.items() if request.topic in ("", topic)]
            on_result(Route(tuple(found)))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_bootstrap_asks_at_once_and_names_all_that_was_tried() -> None:
    first, second = nobody(), nobody()
    with pytest.raises(Unavailable, match=f"{first}.*{second}"):
        bootstrap(f"{first},{second}")


def test_a_name_server_that_is_not_there_is_passed_over(serve: Callable[..., Any]) -> None:
    there = serve(Names({"orders": ORDERS})).address
    with bootstrap([nobody(), there]) as routes:
        assert routes.topic("orders") == (ORDERS,)
        assert routes.brokers() == (ORDERS,)


def test_a_topic_that_one_name_server_does_not_know_is_asked_of_the_next(serve: Callable[..., Any]) -> None:
    servers = [serve(Names({})).address, serve(Names({"orders": ORDERS})).address]
    with Routes(servers) as routes:
        assert routes.topic("orders") == (ORDERS,)


def test_the_topics_of_all_name_servers_are_joined(serve: Callable[..., Any]) -> None:
    servers = [serve(Names({"b": ORDERS})).address, serve(Names({"a": ORDERS, "b": ORDERS})).address]
    with Routes(servers) as routes:
        assert routes.topics() == ("a", "b")


def test_a_topic_nobody_knows_is_no_route(serve: Callable[..., Any]) -> None:
    with Routes(serve(Names({})).address) as routes:
        with pytest.raises(NoRoute, match="penstock topic create"):
            routes.topic("orders")
        with pytest.raises(NoRoute):
            routes.brokers()


@pytest.mark.parametrize("topic", ["%24SYS", "mqtt|sessions"])
def test_a_topic_that_is_the_gateways_own_is_not_made_for_a_producer(serve: Callable[..., Any], topic: str) -> None:
    with (
        Routes(serve(Names({"orders": ORDERS})).address) as routes,
        pytest.raises(InvalidTopic, match="only gateways publish under"),
    ):
        routes.find_or_create(topic)


def test_a_web_server_and_a_broker_are_no_name_servers(serve: Callable[..., Any]) -> None:
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        web = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InvalidConfig, match=rf"{web} is no Penstock name server \(usual port 9876\)"):
            bootstrap(web)
    broker = LinkedCluster().brokers[0]
    broker.refuse = lambda request: UnknownRequest("a broker does not serve QueryTopics")
    address = serve(broker).address
    with pytest.raises(InvalidConfig, match=f"{address} is no Penstock name server"):
        bootstrap(address)
    with Routes([address, serve(Names({"orders": ORDERS})).address]) as routes:
        assert routes.topic("orders") == (ORDERS,), "it is passed over where there is one"


class Telling(Names):
    """A name server that knows fixed topics, and brokers that are away with theirs."""

    def __init__(self, topics: dict[str, BrokerRoute], away: tuple[str, ...], absent: tuple[str, ...] = ()) -> None:
        super().__init__(topics)
        self._known, self._away, self._absent = topics, away, absent

    def submit(self, request: Request, on_result: OnResult) -> None:
        if isinstance(request, QueryTopics):
            on_result(TopicNames(tuple(sorted(self._known)), self._absent, self._away))
        elif isinstance(request, QueryRoute):
            found = [route for topic, route in self._known.items() if request.topic in ("", topic)]
            on_result(Route(tuple(found), self._away))


def test_all_name_servers_together_say_who_has_what_and_who_of_them_is_away(serve: Callable[..., Any]) -> None:
    other = BrokerRoute("b", "127.0.0.1:2", 4)
    one = serve(Telling({"orders": ORDERS}, ("b", "c"), ("jobs", "lost"))).address
    two = serve(Telling({"orders": other, "jobs": other}, ("a",))).address
    with Routes([nobody(), one, two]) as routes:
        assert routes.holders("orders") == ((ORDERS, other), ("c",))
        assert routes.holders() == ((ORDERS, other), ("c",))
        assert routes.topic_names() == TopicNames(("jobs", "orders"), ("lost",), ("c",))
        with pytest.raises(BrokerAway, match="may have some of topic 'none'"):
            routes.holders("none")
    with Routes(serve(Names({})).address) as routes:
        with pytest.raises(NoRoute):
            routes.holders("orders")
        with pytest.raises(NoRoute, match="no live broker is registered"):
            routes.holders()


def test_a_topic_is_deleted_wherever_it_is(serve: Callable[..., Any]) -> None:
    cluster = LinkedCluster(2, topics=["orders"])
    for broker in cluster.brokers:
        broker.listen(serve)
    with Routes(cluster.brokers[0].route.address) as routes:
        deleted = routes.delete_topic("orders")
        assert {broker: was.topic for broker, was in deleted.items()} == {"broker-0": "orders", "broker-1": "orders"}
        with pytest.raises(TopicNotFound):
            routes.delete_topic("orders")
