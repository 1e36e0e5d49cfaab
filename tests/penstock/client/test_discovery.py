"""Routes: freshness, several name servers, creation by policy."""

from __future__ import annotations

import anyio
import anyio.abc
import pytest

from penstock.client.discovery import Discovery
from penstock.client.wire_link import WireLinks
from penstock.errors import (
    BrokerAway,
    InvalidConfig,
    InvalidTopic,
    NoRoute,
    TopicNotFound,
    Unavailable,
    UnknownRequest,
)
from penstock.protocol.link import Link
from penstock.protocol.requests.routes import QueryRoute
from tests.penstock.hand_clock import HandClock
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


class TwoNameServers:
    """``Links`` to two name servers that know different clusters, and to the brokers of the second."""

    def __init__(self, first: LinkedCluster, second: LinkedCluster) -> None:
        self._at = {"ns1:1": first, "ns2:1": second}
        self._second = second

    def link(self, address: str) -> Link:
        cluster = self._at.get(address)
        return cluster.brokers[0] if cluster else self._second.link(address)


def gone(broker: LinkedBroker) -> None:
    broker.refuse = lambda request: Unavailable("gone")


def questions(broker: LinkedBroker) -> int:
    return sum(isinstance(request, QueryRoute) for request in broker.asked)


async def test_an_answer_is_kept_while_it_is_fresh() -> None:
    cluster, clock = LinkedCluster(topics=["orders"]), HandClock()
    discovery = Discovery(LinkedCluster.SERVERS, cluster, clock=clock)
    for _ in range(3):
        assert await discovery.brokers("orders") == (cluster.brokers[0].route,)
    assert questions(cluster.brokers[0]) == 1
    clock.now = 31
    await discovery.brokers("orders")
    assert questions(cluster.brokers[0]) == 2
    discovery.forget("orders")
    assert discovery.known("orders") == ()
    await discovery.brokers("orders")
    assert questions(cluster.brokers[0]) == 3


async def test_a_stale_answer_serves_while_no_name_server_does() -> None:
    cluster = LinkedCluster(topics=["orders"])
    discovery = Discovery(LinkedCluster.SERVERS, cluster)
    before = await discovery.brokers("orders")
    discovery.forget("orders")
    gone(cluster.brokers[0])
    assert await discovery.brokers("orders") == before


async def test_no_name_server_at_all_says_what_was_tried() -> None:
    first, second = LinkedCluster(), LinkedCluster()
    gone(first.brokers[0])
    gone(second.brokers[0])
    discovery = Discovery("ns1:1,ns2:1", TwoNameServers(first, second))
    with pytest.raises(Unavailable, match=r"^no name server answers: gone; gone .*penstock up"):
        await discovery.brokers("orders")
    with pytest.raises(Unavailable):
        await discovery.topics()


async def test_a_name_server_that_is_silent_or_knows_less_is_passed_over() -> None:
    first, second = LinkedCluster(), LinkedCluster(topics=["orders"])
    discovery = Discovery("ns1:1,ns2:1", TwoNameServers(first, second))
    assert await discovery.brokers("orders") == (second.brokers[0].route,)
    silent = LinkedCluster(topics=["orders"])
    silent.brokers[0].silent = lambda request: True
    discovery = Discovery("ns1:1,ns2:1", TwoNameServers(silent, second))
    assert await discovery.brokers("orders") == (second.brokers[0].route,)


async def test_the_name_server_that_answered_is_asked_first_the_next_time() -> None:
    first, second = LinkedCluster(), LinkedCluster(topics=["orders"])
    gone(first.brokers[0])
    discovery = Discovery("ns1:1,ns2:1", TwoNameServers(first, second))
    for _ in range(3):
        await discovery.brokers("orders")
        discovery.forget("orders")
    assert questions(first.brokers[0]) == 1


async def test_an_unknown_topic_is_no_route_unless_policy_makes_it() -> None:
    cluster = LinkedCluster(brokers=3)
    discovery = Discovery(LinkedCluster.SERVERS, cluster)
    with pytest.raises(NoRoute, match="penstock topic create orders"):
        await discovery.brokers("orders")
    (made,) = await discovery.brokers("orders", create=True)
    assert [broker.route for broker in cluster.brokers if "orders" in broker.topics()] == [made]
    discovery = Discovery(LinkedCluster.SERVERS, LinkedCluster(3, auto_create_topics=False))
    with pytest.raises(TopicNotFound):
        await discovery.brokers("bills", create=True)


async def test_without_brokers_there_is_no_route() -> None:
    cluster = LinkedCluster()
    cluster.live = []
    with pytest.raises(NoRoute, match="no live broker is registered"):
        await Discovery(LinkedCluster.SERVERS, cluster).brokers("orders", create=True)


async def test_topics_are_listed() -> None:
    assert await Discovery(LinkedCluster.SERVERS, LinkedCluster(topics=["b", "a"])).topics() == ("a", "b")


@pytest.mark.parametrize("topic", ["%24SYS", "mqtt|sessions"])
async def test_a_topic_that_is_the_gateways_own_is_not_made_for_a_producer(topic: str) -> None:
    cluster = LinkedCluster()
    with pytest.raises(InvalidTopic, match="only gateways publish under"):
        await Discovery(LinkedCluster.SERVERS, cluster).brokers(topic, create=True)
    assert cluster.brokers[0].topics() == set()


async def test_a_silent_name_server_is_named_once() -> None:
    cluster = LinkedCluster()
    cluster.brokers[0].silent = lambda request: True
    with pytest.raises(Unavailable) as caught:
        await Discovery(LinkedCluster.SERVERS, cluster).brokers("orders")
    assert caught.value.message == "no name server answers: 127.0.0.1:9876 did not answer in time"


async def test_a_broker_is_no_name_server_and_passed_over_where_there_is_one() -> None:
    first, second = LinkedCluster(), LinkedCluster(topics=["orders"])
    first.brokers[0].refuse = lambda request: UnknownRequest("a broker does not serve QueryRoute")
    with pytest.raises(InvalidConfig, match=r"127.0.0.1:9876 is no Penstock name server \(usual port 9876\)"):
        await Discovery(LinkedCluster.SERVERS, first).brokers("orders")
    with pytest.raises(InvalidConfig, match="is no Penstock name server"):
        await Discovery(LinkedCluster.SERVERS, first).topics()
    discovery = Discovery("ns1:1,ns2:1", TwoNameServers(first, second))
    assert await discovery.brokers("orders") == (second.brokers[0].route,)


async def test_a_web_server_is_no_name_server() -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.start_soon(listener.serve, answer)
        discovery = Discovery(f"127.0.0.1:{port}", WireLinks(tasks))
        with pytest.raises(InvalidConfig, match=f"127.0.0.1:{port} is no Penstock name server"):
            await discovery.brokers("orders")
        tasks.cancel_scope.cancel()


async def test_all_name_servers_together_say_who_has_a_topic_and_who_of_them_is_away() -> None:
    first, second = LinkedCluster(topics=["orders"]), LinkedCluster(brokers=2, topics=["orders"])
    first.peers, second.peers = ("broker-1", "broker-7"), ("broker-0",)
    second.live = second.brokers[1:]
    found = await Discovery("ns1:1,ns2:1", TwoNameServers(first, second)).holders("orders")
    assert [route.broker for route in found.brokers] == ["broker-0", "broker-1"]
    assert found.away == ("broker-7",)


async def test_a_topic_that_only_brokers_have_that_are_away_is_not_unknown() -> None:
    cluster = LinkedCluster()
    with pytest.raises(NoRoute):
        await Discovery(LinkedCluster.SERVERS, cluster).holders("orders")
    cluster.peers = ("broker-1",)
    with pytest.raises(BrokerAway, match="broker-1"):
        await Discovery(LinkedCluster.SERVERS, cluster).holders("orders")
    gone(cluster.brokers[0])
    with pytest.raises(Unavailable):
        await Discovery(LinkedCluster.SERVERS, cluster).holders("orders")


async def test_a_topic_is_deleted_wherever_it_is_and_its_routes_are_forgotten() -> None:
    cluster = LinkedCluster(2, topics=["orders"])
    discovery = Discovery(LinkedCluster.SERVERS, cluster)
    assert len(await discovery.brokers("orders")) == 2
    deleted = await discovery.delete_topic("orders")
    assert {was.topic for was in deleted.values()} == {"orders"}
    assert len(deleted) == 2
    assert discovery.known("orders") == ()
    with pytest.raises(TopicNotFound):
        await discovery.delete_topic("orders")
