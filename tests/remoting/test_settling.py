"""Messages that are given back, and transactions."""

from __future__ import annotations

import pytest

from penstock.blocking.admin import Admin
from remoting import codes
from remoting.frames import Command
from tests.node.running import RunningSystem
from tests.remoting.remoting_rig import RemotingClient, Seen, seen


def stored(client: RemotingClient, topic: str) -> Seen:
    client.produce(topic, b"work", e=0)
    (one,) = seen(client.pull("none", topic).body)
    return one


def give_back(client: RemotingClient, group: str, one: Seen, **more: object) -> Command:
    fields = {"offset": one.position, "group": group, "delayLevel": 1, "originTopic": one.topic}
    return client.ask(codes.SEND_BACK, **(fields | more))


def test_what_is_given_back_comes_again_with_its_first_topic(client: RemotingClient, name: str) -> None:
    one = stored(client, name)
    assert client.beat(name, topics=(name,)).code == codes.SUCCESS
    assert give_back(client, name, one).code == codes.SUCCESS
    (again,) = seen(client.pull(name, f"%RETRY%{name}", wait_ms=20_000).body)
    assert (again.body, again.attempts, again.properties["RETRY_TOPIC"]) == (b"work", 1, name)


@pytest.mark.parametrize("more", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}])
def test_what_was_tried_often_enough_is_a_dead_letter(
    more: dict[str, int], client: RemotingClient, node: RunningSystem, name: str
) -> None:
    one = stored(client, name)
    client.beat(name, topics=(name,))
    assert give_back(client, name, one, **more).code == codes.SUCCESS
    with Admin(node.addresses.namesrv) as admin:
        assert [letter.message.body for letter in admin.letters_of(name)] == [b"work"]


def send_to_retries(client: RemotingClient, group: str, topic: str, unique_id: str, attempts: int) -> Command:
    properties = f"ORIGIN_MESSAGE_ID\x01{unique_id}\x02RETRY_TOPIC\x01{topic}\x02UNIQ_KEY\x01{unique_id}\x02DELAY\x013"
    return client.produce(f"%RETRY%{group}", b"copy", properties, j=attempts, l=1)


def test_what_is_sent_to_the_retries_of_a_group_is_given_back_and_a_dead_letter_at_last(
    client: RemotingClient, node: RunningSystem, name: str
) -> None:
    client.produce(name, b"work", f"UNIQ_KEY\x01{name}-id", e=0)
    assert send_to_retries(client, name, name, f"{name}-id", 1).code == codes.SYSTEM_ERROR  # no client has told of it
    client.beat(name, topics=(name,))
    assert send_to_retries(client, name, name, f"{name}-other", 1).code == codes.MESSAGE_ILLEGAL
    assert send_to_retries(client, name, "nowhere", f"{name}-id", 1).code == codes.MESSAGE_ILLEGAL
    assert send_to_retries(client, name, name, f"{name}-id", 1).code == codes.SUCCESS
    with Admin(node.addresses.namesrv) as admin:
        assert [letter.message.body for letter in admin.letters_of(name)] == [b"work"]


def test_only_a_group_that_is_there_gives_back(client: RemotingClient, name: str) -> None:
    one = stored(client, name)
    answer = give_back(client, name, one)
    assert answer.code == codes.SYSTEM_ERROR
    assert name in answer.remark
    client.beat(name, topics=(name,))
    assert give_back(client, name, one, offset=1 << 40).code == codes.SYSTEM_ERROR


def half(client: RemotingClient, topic: str, group: str) -> dict[str, str]:
    client.produce(topic, b"first", e=0)
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01u"
    answer = client.produce(topic, b"half", properties, a=group, e=0)
    assert answer.code == codes.SUCCESS
    return answer.fields


@pytest.mark.parametrize(("outcome", "found"), [(8, [b"first", b"half"]), (12, [b"first"]), (0, [b"first"])])
def test_a_half_is_seen_once_it_is_committed(
    outcome: int, found: list[bytes], client: RemotingClient, name: str
) -> None:
    fields = half(client, name, name)
    assert [one.body for one in seen(client.pull("g", name).body)] == [b"first"]
    position = int(fields["msgId"][16:], 16)
    answer = client.ask(
        codes.END_TRANSACTION,
        producerGroup=name,
        tranStateTableOffset=fields["queueOffset"],
        commitLogOffset=position,
        commitOrRollback=outcome,
        msgId="u",
    )
    assert answer.code == codes.SUCCESS
    assert [one.body for one in seen(client.pull("g", name).body)] == found


def test_a_transactional_message_cannot_be_delayed(client: RemotingClient, name: str) -> None:
    answer = client.produce(name, b"x", "TRAN_MSG\x01true\x02DELAY\x011")
    assert answer.code == codes.MESSAGE_ILLEGAL


def test_a_producer_is_asked_about_a_half_that_it_has_left(client: RemotingClient, name: str) -> None:
    client.beat(producers=(name,))
    fields = half(client, name, name)
    asked = client.next_push(codes.CHECK_TRANSACTION)
    assert asked.fields["tranStateTableOffset"] == fields["queueOffset"]
    assert asked.fields["offsetMsgId"] == fields["msgId"]
    (one,) = seen(asked.body)
    assert (one.body, one.properties["PGROUP"]) == (b"half", name)
