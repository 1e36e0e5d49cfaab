"""Heartbeats, goodbyes, locks, and groups that are of one kind at a time."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.blocking.consumer import Consumer
from penstock.errors import InvalidRequest
from remoting import codes
from remoting.frames import RESPONSE, Command, encode
from tests.node.running import RunningSystem
from tests.remoting.remoting_rig import RemotingClient, seen


def members(client: RemotingClient, group: str) -> list[str]:
    answer = client.ask(codes.CONSUMERS_OF_GROUP, consumerGroup=group)
    found: list[str] = json.loads(answer.body)["consumerIdList"]
    return found


def test_members_hear_of_each_other_and_of_a_connection_that_ends(
    connect: Callable[..., RemotingClient], name: str
) -> None:
    first, second = connect(f"{name}@1"), connect(f"{name}@2")
    first.produce(name, b"x")
    first.beat(name, topics=(name,))
    second.beat(name, topics=(name,))
    assert first.next_push(codes.CONSUMERS_CHANGED).fields == {"consumerGroup": name}
    assert members(first, name) == [first.id, second.id]
    first.pushed.clear()
    second.close()
    assert first.next_push(codes.CONSUMERS_CHANGED).fields == {"consumerGroup": name}
    assert members(first, name) == [first.id]


def test_a_client_says_goodbye(client: RemotingClient, name: str) -> None:
    client.beat(name, topics=(name,))
    client.ask(codes.UNREGISTER_CLIENT, clientID=client.id, consumerGroup=name, producerGroup="")
    assert members(client, name) == []


def test_clients_in_cpp_name_enumerations_by_number(client: RemotingClient, name: str) -> None:
    numbers = {"consumeType": 1, "messageModel": 1, "consumeFromWhere": 0}
    assert client.beat(name, topics=(name,), **numbers).code == codes.SUCCESS
    row = json.loads(client.ask(codes.CONSUMER_CONNECTIONS, consumerGroup=name).body)
    assert (row["messageModel"], row["consumeType"]) == ("CLUSTERING", "CONSUME_PASSIVELY")
    assert row["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"clientID":""}', b'{"clientID":"c","consumerDataSet":[1]}'])
def test_a_heartbeat_that_is_none_is_an_error_and_the_connection_goes_on(body: bytes, client: RemotingClient) -> None:
    answer = client.ask(codes.HEARTBEAT, body)
    assert answer.code == codes.SYSTEM_ERROR
    assert "heartbeat" in answer.remark or "JSON" in answer.remark
    assert client.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS


def test_native_members_keep_rocketmqs_clients_out_and_the_other_way_round(
    client: RemotingClient, node: RunningSystem, name: str
) -> None:
    client.produce(name, b"x")
    servers = node.addresses.namesrv
    with Consumer(name, [name], servers=servers) as consumer:
        consumer.poll(5.0)
        refused = client.beat(name, topics=(name,))
        assert refused.code == codes.SYSTEM_ERROR
        assert name in refused.remark
        answer = client.pull(name, name)
        assert (answer.code, answer.remark) == (codes.SUBSCRIPTION_NOT_EXIST, refused.remark)
    other = f"{name}-other"
    assert client.beat(other, topics=(name,)).code == codes.SUCCESS
    with pytest.raises(InvalidRequest, match="remoting"), Consumer(other, [name], servers=servers) as consumer:
        consumer.poll(5.0)


def locked(client: RemotingClient, group: str, code: int, *queues: int) -> list[int]:
    wanted = [{"topic": "t", "brokerName": "broker", "queueId": number} for number in queues]
    body = json.dumps({"consumerGroup": group, "clientId": client.id, "mqSet": wanted}).encode()
    answer = client.ask(code, body)
    return [one["queueId"] for one in json.loads(answer.body)["lockOKMQSet"]] if answer.body else []


def test_a_queue_is_locked_by_one_client_at_a_time(connect: Callable[..., RemotingClient], name: str) -> None:
    first, second = connect(), connect()
    assert locked(first, name, codes.LOCK_QUEUES, 0, 1) == [0, 1]
    assert locked(second, name, codes.LOCK_QUEUES, 1, 2) == [2]
    locked(first, name, codes.UNLOCK_QUEUES, 1)
    assert locked(second, name, codes.LOCK_QUEUES, 0, 1) == [1]
    assert locked(first, name, codes.LOCK_QUEUES, 0) == [0]


def test_connections_of_producers_and_consumers_are_listed(client: RemotingClient, name: str) -> None:
    assert client.ask(codes.CONSUMER_CONNECTIONS, consumerGroup=name).code == codes.CONSUMER_NOT_ONLINE
    assert client.ask(codes.PRODUCER_CONNECTIONS, producerGroup=name).code == codes.SYSTEM_ERROR
    client.beat(name, topics=(name,), producers=(name,))
    for code, field in ((codes.CONSUMER_CONNECTIONS, "consumerGroup"), (codes.PRODUCER_CONNECTIONS, "producerGroup")):
        row = json.loads(client.ask(code, **{field: name}).body)
        assert [one["clientId"] for one in row["connectionSet"]] == [client.id]


def test_ten_thousand_topics_and_two_thousand_groups_in_a_heartbeat_harm_no_bystander(
    connect: Callable[..., RemotingClient], name: str
) -> None:
    greedy, bystander = connect(), connect()
    assert greedy.beat(name, topics=tuple([f"{name}-{number}" for number in range(10_000)])).code == codes.SUCCESS
    assert greedy.beat(*[f"{name}-{number}" for number in range(2_000)], topics=(name,)).code == codes.SUCCESS
    assert bystander.produce(name, b"x").code == codes.SUCCESS
    assert members(bystander, f"{name}-1999") == [greedy.id]
    greedy.close()
    while members(bystander, f"{name}-1999"):
        pass  # the front sees the end of the connection a moment later
    assert bystander.produce(name, b"x").code == codes.SUCCESS


def test_a_tool_asks_a_consumer_about_itself_and_has_it_work_a_message_off(
    connect: Callable[..., RemotingClient], name: str
) -> None:
    consumer, tool = connect(f"{name}@1"), connect()
    sent = consumer.produce(name, b"now", e=0)
    consumer.beat(name, topics=(name,))
    asked = {"consumerGroup": name, "clientId": consumer.id}
    for code, more in ((codes.CONSUMER_RUNNING_INFO, {}), (codes.CONSUME_DIRECTLY, {"msgId": sent.fields["msgId"]})):
        number = tool.send(code, **asked, **more)
        question = consumer.next_push(code)
        consumer.socket.sendall(encode(question.answer(codes.SUCCESS, body=b'{"said":"so"}')))
        answer = tool.answer(number)
        assert (answer.code, answer.body) == (codes.SUCCESS, b'{"said":"so"}')
        assert question.fields.items() >= asked.items()
    assert [one.body for one in seen(question.body)] == [b"now"]
    assert tool.ask(codes.CONSUMER_RUNNING_INFO, consumerGroup=name, clientId="other").code == codes.CONSUMER_NOT_ONLINE
    assert tool.ask(codes.CONSUME_DIRECTLY, **asked, msgId="?").code == codes.SYSTEM_ERROR


def test_a_tool_sees_how_far_each_client_says_that_it_has_come(
    connect: Callable[..., RemotingClient], name: str
) -> None:
    first, second, tool = connect(f"{name}@1"), connect(f"{name}@2"), connect()
    for one in (first, second):
        one.beat(name, topics=(name,))
    for only, asked in ((second.id, [second]), ("", [first, second])):
        number = tool.send(codes.CONSUMER_STATUS, topic=name, group=name, clientAddr=only)
        for client in asked:
            question = client.next_push(codes.CLIENT_STATUS)
            assert (question.fields["topic"], question.fields["group"]) == (name, name)
            body = f'{{"consumerTable":{{}},"messageQueueTable":{{{{"queueId":{client.id[-1]}}}:7}}}}'.encode()
            client.socket.sendall(encode(question.answer(codes.SUCCESS, body=body)))
        answer = tool.answer(number)
        rows = ",".join([f'"{one.id}":{{{{"queueId":{one.id[-1]}}}:7}}' for one in asked])
        assert (answer.code, answer.body.decode()) == (codes.SUCCESS, f'{{"consumerTable":{{{rows}}}}}')
    assert tool.ask(codes.CONSUMER_STATUS, topic=name, group="nobody").code == codes.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"{}", b'{"messageQueueTable":{', b"\xff" * 9, b'{"messageQueueTable":null}'])
def test_a_client_that_says_nothing_of_its_place_has_an_empty_table(
    body: bytes, connect: Callable[..., RemotingClient], name: str
) -> None:
    consumer, tool = connect(), connect()
    consumer.beat(name, topics=(name,))
    number = tool.send(codes.CONSUMER_STATUS, topic=name, group=name)
    consumer.socket.sendall(encode(consumer.next_push(codes.CLIENT_STATUS).answer(codes.SUCCESS, body=body)))
    assert json.loads(tool.answer(number).body) == {"consumerTable": {consumer.id: {}}}


def test_an_answer_that_nobody_has_asked_for_does_nothing(client: RemotingClient) -> None:
    client.socket.sendall(encode(Command(0, 1, flag=RESPONSE)))
    assert client.ask(codes.CHECK_CLIENT_CONFIG).code == codes.SUCCESS
