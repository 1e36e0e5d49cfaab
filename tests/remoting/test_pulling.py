"""What RocketMQ's consumers read, and where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from remoting import codes
from tests.remoting.remoting_rig import RemotingClient, seen

MOVES = [(5, codes.PULL_OFFSET_MOVED, "3"), (3, codes.PULL_NOT_FOUND, "3"), (0, codes.SUCCESS, "3")]


def three(client: RemotingClient, topic: str) -> None:
    for tag in "aba":
        client.produce(topic, tag.encode(), f"TAGS\x01{tag}\x02n\x01{ord(tag)}", e=0)


@pytest.mark.parametrize(("offset", "code", "following"), MOVES)
def test_every_answer_has_the_four_fields_that_clients_read(
    offset: int, code: int, following: str, client: RemotingClient, name: str
) -> None:
    three(client, name)
    answer = client.pull("g", name, offset=offset)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (code, following)
    assert {name: answer.fields[name] for name in ("suggestWhichBrokerId", "minOffset", "maxOffset")} == {
        "suggestWhichBrokerId": "0",
        "minOffset": "0",
        "maxOffset": "3",
    }


@pytest.mark.parametrize(
    ("subscription", "kind", "found"),
    [("*", "TAG", "aba"), ("a", "TAG", "aa"), ("b || c", "TAG", "b"), ("n > 97", "SQL92", "b"), ("", "TAG", "aba")],
)
def test_the_broker_chooses_by_tags_and_by_sql(
    subscription: str, kind: str, found: str, client: RemotingClient, name: str
) -> None:
    three(client, name)
    answer = client.pull("g", name, sysFlag=4, subscription=subscription, expressionType=kind)
    assert b"".join([one.body for one in seen(answer.body)]).decode() == found


def test_a_consumer_sees_where_the_producer_was(connect: Callable[..., RemotingClient], name: str) -> None:
    producer = connect(source="127.0.0.9")
    _, port = producer.socket.getsockname()
    producer.produce(name, b"x", e=0)
    (one,) = seen(connect().pull("g", name).body)
    assert one.born_host == bytes((127, 0, 0, 9)) + port.to_bytes(4, "big")


def test_what_was_passed_over_is_not_asked_for_again(client: RemotingClient, name: str) -> None:
    three(client, name)
    answer = client.pull("g", name, sysFlag=4, subscription="none", expressionType="TAG")
    assert (answer.code, answer.fields["nextBeginOffset"]) == (codes.PULL_RETRY_IMMEDIATELY, "3")


def test_a_condition_that_cannot_be_understood_is_refused_in_words(client: RemotingClient, name: str) -> None:
    three(client, name)
    answer = client.pull("g", name, sysFlag=4, subscription="n > > 1", expressionType="SQL92")
    assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark


def test_a_pull_waits_for_the_first_message(connect: Callable[..., RemotingClient], name: str) -> None:
    reading, writing = connect(), connect()
    three(writing, name)
    fields = {"consumerGroup": "g", "topic": name, "queueId": 0, "queueOffset": 3, "maxMsgNums": 32, "sysFlag": 2}
    waiting = reading.send(codes.PULL, commitOffset=0, suspendTimeoutMillis=20_000, **fields)
    assert reading.ask(codes.MAX_OFFSET, topic=name, queueId=0).fields == {"offset": "3"}  # and does not hold up others
    writing.produce(name, b"news", e=0)
    assert [one.body for one in seen(reading.answer(waiting).body)] == [b"news"]


@pytest.mark.parametrize("version", [0, 394, 409, 464])
def test_clients_of_all_versions_get_a_layout_that_they_read(
    version: int, connect: Callable[..., RemotingClient], name: str
) -> None:
    client = connect(version=version)
    three(client, name)
    found = seen(client.pull("g", name).body)
    assert [(one.magic.hex(), one.topic, one.body) for one in found] == [
        ("daa320a7", name, one) for one in (b"a", b"b", b"a")
    ]


def test_a_long_topic_is_read_by_clients_that_can(connect: Callable[..., RemotingClient], name: str) -> None:
    topic = name + "x" * 150
    old, new = connect(version=394), connect(version=464)
    three(new, topic)
    assert [one.topic for one in seen(new.pull("g", topic).body)] == [topic] * 3
    assert seen(old.pull("g", topic).body) == []


def test_bounds_offsets_by_time_and_a_groups_position(client: RemotingClient, name: str) -> None:
    three(client, name)
    where = {"topic": name, "queueId": 0}
    assert client.ask(codes.MIN_OFFSET, **where).fields == {"offset": "0"}
    assert client.ask(codes.MAX_OFFSET, **where).fields == {"offset": "3"}
    assert client.ask(codes.SEARCH_OFFSET, timestamp=0, **where).fields == {"offset": "0"}
    assert client.ask(codes.SEARCH_OFFSET, timestamp=1 << 50, **where).fields == {"offset": "3"}
    group = {"consumerGroup": name, **where}
    assert client.ask(codes.QUERY_OFFSET, **group).code == codes.QUERY_NOT_FOUND
    assert client.ask(codes.UPDATE_OFFSET, commitOffset=2, **group).code == codes.SUCCESS
    assert client.ask(codes.QUERY_OFFSET, **group).fields == {"offset": "2"}
    assert client.ask(codes.UPDATE_OFFSET, commitOffset=4, **group).code == codes.SYSTEM_ERROR
    assert client.ask(codes.QUERY_OFFSET, **group).fields == {"offset": "2"}


def test_a_pull_commits_what_it_says(client: RemotingClient, name: str) -> None:
    three(client, name)
    client.beat(name, topics=(name,))
    client.pull(name, name, offset=3, sysFlag=1, commitOffset=2)
    where = {"consumerGroup": name, "topic": name, "queueId": 0}
    while client.ask(codes.QUERY_OFFSET, **where).code != codes.SUCCESS:
        pass  # the commit goes beside the pull; a test that waits for it for ever is stopped
    assert client.ask(codes.QUERY_OFFSET, **where).fields == {"offset": "2"}


def test_a_queue_that_is_not_there_is_an_error_but_retries_are_only_none_yet(client: RemotingClient, name: str) -> None:
    assert client.pull("g", name).code == codes.TOPIC_NOT_EXIST
    assert client.pull("g", f"%RETRY%{name}").code == codes.PULL_NOT_FOUND
    assert client.ask(codes.MAX_OFFSET, topic=f"%RETRY%{name}", queueId=0).fields == {"offset": "0"}


def test_messages_are_found_by_key_by_id_and_by_position(client: RemotingClient, name: str) -> None:
    sent = client.produce(name, b"found", "KEYS\x01k1\x02UNIQ_KEY\x01u-" + name, e=0)
    for key in ("k1", f"u-{name}"):
        answer = client.ask(codes.QUERY_MESSAGE, topic=name, key=key, maxNum=10, beginTimestamp=0, endTimestamp=1 << 50)
        assert [one.body for one in seen(answer.body)] == [b"found"]
    position = int(sent.fields["msgId"][16:], 16)
    assert [one.body for one in seen(client.ask(codes.VIEW_MESSAGE, offset=position).body)] == [b"found"]
    nothing = client.ask(
        codes.QUERY_MESSAGE, topic=name, key="other", maxNum=10, beginTimestamp=0, endTimestamp=1 << 50
    )
    assert nothing.code == codes.QUERY_NOT_FOUND
