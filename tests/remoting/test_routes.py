"""Routes and administration in RocketMQ's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator

import pytest

from penstock.protocol.requests.routes import BrokerRoute, ConfigEntries, ConfigEntry, Route
from remoting import codes
from remoting.calls import Call
from remoting.flows import Own
from remoting.frames import Command
from remoting.routes import FRONTS, route
from tests.node.running import RunningSystem
from tests.remoting.remoting_rig import RemotingClient, idle_front


def test_a_topics_route_leads_to_the_front(client: RemotingClient, node: RunningSystem, name: str) -> None:
    assert client.ask(codes.CREATE_TOPIC, topic=name, writeQueueNums=3, readQueueNums=3, perm=6).code == codes.SUCCESS
    while (answer := client.ask(codes.ROUTE, topic=name)).code != codes.SUCCESS:
        assert answer.code == codes.TOPIC_NOT_EXIST  # the broker tells its name server a moment later
    row = json.loads(answer.body)
    (queues,) = row["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)
    (broker,) = row["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": node.addresses.rocketmq}
    assert broker["brokerName"] == queues["brokerName"]


def test_both_ports_serve_both_faces(client: RemotingClient, node: RunningSystem) -> None:
    other = RemotingClient(node.addresses.rocketmq_namesrv)
    try:
        for one in (client, other):
            (queues,) = json.loads(one.ask(codes.ROUTE, topic="TBW102").body)["queueDatas"]
            assert (queues["perm"], queues["writeQueueNums"]) == (7, 8)
    finally:
        other.close()


def test_retries_have_one_queue_before_there_are_any(client: RemotingClient, name: str) -> None:
    (queues,) = json.loads(client.ask(codes.ROUTE, topic=f"%RETRY%{name}").body)["queueDatas"]
    assert (queues["readQueueNums"], queues["perm"]) == (1, 6)


def test_an_unknown_topic_has_no_route(client: RemotingClient, name: str) -> None:
    answer = client.ask(codes.ROUTE, topic=name)
    assert answer.code == codes.TOPIC_NOT_EXIST
    assert name in answer.remark


def test_topics_and_the_cluster_are_listed(client: RemotingClient, node: RunningSystem, name: str) -> None:
    client.ask(codes.CREATE_TOPIC, topic=name, writeQueueNums=1, readQueueNums=1, perm=6)
    while name not in json.loads(client.ask(codes.ALL_TOPICS).body)["topicList"]:
        pass  # the broker tells its name server a moment later
    row = json.loads(client.ask(codes.CLUSTER_INFO).body)
    ((broker, data),) = row["brokerAddrTable"].items()
    assert row["clusterAddrTable"] == {"DefaultCluster": [broker]}
    assert data["brokerAddrs"] == {"0": node.addresses.rocketmq}


def test_a_topic_is_changed_read_only_and_deleted(client: RemotingClient, name: str) -> None:
    for perm in (6, 4):
        client.ask(codes.CREATE_TOPIC, topic=name, writeQueueNums=2, readQueueNums=2, perm=perm)
    assert client.produce(name, b"x", e=0).code == codes.NO_PERMISSION
    assert client.ask(codes.DELETE_TOPIC, topic=name).code == codes.SUCCESS
    assert client.ask(codes.DELETE_TOPIC, topic=name).code == codes.TOPIC_NOT_EXIST


def table(body: bytes) -> str:
    """RocketMQ's tables have objects for keys, which is no JSON."""
    return body.decode()


def test_bounds_of_a_topic_and_progress_of_a_group(client: RemotingClient, name: str) -> None:
    client.produce(name, b"x", e=0)
    stats = table(client.ask(codes.TOPIC_STATS, topic=name).body)
    assert f'"queueId":0,"topic":"{name}"}}:{{"lastUpdateTimestamp":' in stats
    assert '"maxOffset":1,"minOffset":0' in stats
    assert table(client.ask(codes.CONSUME_STATS, consumerGroup=name).body) == '{"consumeTps":0.0,"offsetTable":{}}'
    client.beat(name, topics=(name,))
    client.ask(codes.UPDATE_OFFSET, consumerGroup=name, topic=name, queueId=0, commitOffset=1)
    progress = table(client.ask(codes.CONSUME_STATS, consumerGroup=name).body)
    assert '"brokerOffset":1,"consumerOffset":1' in progress


def test_a_group_is_deleted_once_its_clients_are_gone(connect: Callable[..., RemotingClient], name: str) -> None:
    client, admin = connect(), connect()
    client.produce(name, b"x", e=0)
    client.beat(name, topics=(name,))
    client.ask(codes.UPDATE_OFFSET, consumerGroup=name, topic=name, queueId=0, commitOffset=1)
    assert admin.ask(codes.DELETE_GROUP, groupName=name).code == codes.SYSTEM_ERROR
    client.ask(codes.UNREGISTER_CLIENT, clientID=client.id, consumerGroup=name)
    assert admin.ask(codes.DELETE_GROUP, groupName=name).code == codes.SUCCESS
    where = {"consumerGroup": name, "topic": name, "queueId": 0}
    assert admin.ask(codes.QUERY_OFFSET, **where).code == codes.QUERY_NOT_FOUND
    assert admin.ask(codes.DELETE_GROUP, groupName=name).code == codes.SUCCESS


def test_the_configuration_of_a_topic_and_the_brokers_figures_are_told(client: RemotingClient, name: str) -> None:
    client.ask(codes.CREATE_TOPIC, topic=name, writeQueueNums=3, readQueueNums=3, perm=4)
    row = json.loads(client.ask(codes.TOPIC_CONFIG, topic=name).body)
    assert (row["topicName"], row["readQueueNums"], row["perm"]) == (name, 3, 4)
    table = json.loads(client.ask(codes.BROKER_INFO).body)["table"]
    assert table["brokerVersionDesc"].startswith("Penstock ")
    assert float(table["penstock_topics"]) > 0


@pytest.mark.parametrize(("time_ms", "offset"), [(0, 0), (-1, 2), (1 << 50, 2)])
def test_offsets_of_a_group_are_reset_and_its_clients_are_told(
    time_ms: int, offset: int, client: RemotingClient, name: str
) -> None:
    for _ in range(2):
        client.produce(name, b"x", e=0)
    client.beat(name, topics=(name,))
    client.ask(codes.UPDATE_OFFSET, consumerGroup=name, topic=name, queueId=0, commitOffset=1)
    answer = client.ask(codes.RESET_OFFSETS, topic=name, group=name, timestamp=time_ms, isForce="true")
    assert f'"queueId":0,"topic":"{name}"}}:{offset}' in answer.body.decode()
    assert client.next_push(codes.RESET_CLIENT_OFFSETS).body == answer.body
    where = {"consumerGroup": name, "topic": name, "queueId": 0}
    assert client.ask(codes.QUERY_OFFSET, **where).fields == {"offset": str(offset)}


@pytest.mark.parametrize("code", [codes.CREATE_GROUP, codes.DELETE_TOPIC_AT_NAMES])
def test_what_needs_nothing_here_is_done(code: int, client: RemotingClient) -> None:
    assert client.ask(code).code == codes.SUCCESS


def routed(brokers: tuple[BrokerRoute, ...], fronts: dict[str, str]) -> dict[str, dict[str, str]]:
    """Broker name -> addresses in the route of a topic, as a front at another broker gives it."""
    flow = route(Call(Command(codes.ROUTE, fields={"topic": "t"}), idle_front(), 1, "", b""))
    assert isinstance(flow, Generator)
    assert isinstance(next(flow), Own)
    flow.send(ConfigEntries(tuple([ConfigEntry(FRONTS, key, place) for key, place in fronts.items()])))
    with pytest.raises(StopIteration) as ended:
        flow.send(Route(brokers))
    return {one["brokerName"]: one["brokerAddrs"] for one in json.loads(ended.value.value.body)["brokerDatas"]}


def test_the_route_of_a_broker_with_copies_leads_to_the_front_of_the_node_that_leads() -> None:
    fronts = {"a": "10.0.0.1:9", "10.0.0.1:1": "10.0.0.1:9", "10.0.0.2:1": "10.0.0.2:9", "b": "10.0.0.3:9"}
    for leader in ("10.0.0.1", "10.0.0.2"):
        brokers = BrokerRoute("a", f"{leader}:1", 4, epoch=3), BrokerRoute("b", "10.0.0.3:1", 4)
        assert routed(brokers, fronts) == {"a": {"0": f"{leader}:9"}, "b": {"0": "10.0.0.3:9"}}
    assert routed((BrokerRoute("a", "10.0.0.7:1", 4, epoch=4), BrokerRoute("own", "x:1", 4)), fronts) == {
        "own": {"0": "10.0.0.9:2"}
    }


def test_copies_that_can_be_read_are_slaves_in_a_route_where_they_have_fronts() -> None:
    fronts = {f"10.0.0.{node}:1": f"10.0.0.{node}:9" for node in (1, 2, 3)}
    readers = tuple([f"10.0.0.{node}:1" for node in (1, 2, 3, 4)])
    led = BrokerRoute("a", "10.0.0.2:1", 4, epoch=3, readers=readers)
    assert routed((led,), fronts) == {"a": {"0": "10.0.0.2:9", "1": "10.0.0.1:9", "2": "10.0.0.3:9"}}


def test_the_groups_of_a_topic_are_those_with_a_position_or_a_client(
    connect: Callable[..., RemotingClient], name: str
) -> None:
    client, other = connect(), connect(client_id="other@1")
    client.produce(name, b"x", e=0)
    client.beat(f"{name}-left", topics=(name,))
    client.ask(codes.UPDATE_OFFSET, consumerGroup=f"{name}-left", topic=name, queueId=0, commitOffset=1)
    client.ask(codes.UNREGISTER_CLIENT, clientID=client.id, consumerGroup=f"{name}-left")
    other.beat(f"{name}-here", f"{name}-elsewhere", topics=(name,))
    answer = json.loads(client.ask(codes.GROUPS_OF_TOPIC, topic=name).body)
    assert answer == {"groupList": [f"{name}-elsewhere", f"{name}-here", f"{name}-left"]}
    assert json.loads(client.ask(codes.GROUPS_OF_TOPIC, topic=f"{name}x").body) == {"groupList": []}
    assert f"%RETRY%{name}-here" in json.loads(client.ask(codes.ALL_TOPICS).body)["topicList"]


def test_a_topics_rate_is_that_of_the_messages_that_are_there(client: RemotingClient, name: str) -> None:
    for _ in range(3):
        client.produce(name, b"x")
    row = json.loads(client.ask(codes.BROKER_STATS, statsName="TOPIC_PUT_NUMS", statsKey=name).body)
    assert [row[one]["sum"] for one in ("statsMinute", "statsHour", "statsDay")] == [3, 3, 3]
    assert row["statsMinute"]["tps"] == 0.05
    assert client.ask(codes.BROKER_STATS, statsName="TOPIC_PUT_NUMS", statsKey="t?").code == codes.TOPIC_NOT_EXIST
    assert client.ask(codes.BROKER_STATS, statsName="GROUP_GET_NUMS", statsKey=name).code == codes.SYSTEM_ERROR
