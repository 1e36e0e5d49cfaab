"""What RocketMQ's producers send is stored, at once or later, or refused in words."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority
from penstock.access.policy import SCRAM, Identity
from penstock.blocking.reader import Reader
from penstock.errors import Busy, NoQuorum, NotLeader, PenstockError, StorageFull, TimedOut, TopicNotFound
from penstock.protocol.requests.messages import Append
from penstock.protocol.requests.topics import ChangeTopic, DescribeTopic, TopicDetail
from penstock.service.audit import Audit
from penstock.service.permissions import Permissions
from remoting import codes
from remoting.calls import Call, refusal
from remoting.flows import Flow, Own
from remoting.frames import Command
from remoting.sending import send
from tests.node.running import RunningSystem
from tests.patience import PATIENCE_S
from tests.remoting.remoting_rig import RemotingClient, idle_front, seen


def bodies(node: RunningSystem, topic: str) -> list[bytes]:
    with Reader(topic, servers=node.addresses.namesrv, until_end=True) as reader:
        return sorted([message.body for message in reader.messages()])


def test_a_message_makes_its_topic_and_is_where_the_answer_says(client: RemotingClient, name: str) -> None:
    answer = client.produce(name, b"hello", "TAGS\x01a\x02UNIQ_KEY\x01u1\x02")
    assert answer.code == codes.SUCCESS
    assert answer.fields["transactionId"] == "u1"
    pulled = client.pull("readers", name, int(answer.fields["queueId"]), int(answer.fields["queueOffset"]))
    (one,) = seen(pulled.body)
    assert (one.topic, one.body, one.properties["TAGS"]) == (name, b"hello", "a")
    assert answer.fields["msgId"] == f"7F000001{client.socket.getpeername()[1]:08X}{one.position:016X}"


def test_the_long_and_the_short_form_mean_the_same(client: RemotingClient, name: str) -> None:
    client.produce(name, b"short", e=0)
    fields = {"producerGroup": "p", "topic": name, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
    assert client.ask(codes.SEND, b"long", properties="", reconsumeTimes=0, **fields).code == codes.SUCCESS
    assert [one.body for one in seen(client.pull("g", name).body)] == [b"short", b"long"]


def test_a_topic_that_is_missing_is_made_only_where_the_client_asks_for_it(client: RemotingClient, name: str) -> None:
    answer = client.produce(name, b"x", c="")
    assert (answer.code, answer.fields) == (codes.TOPIC_NOT_EXIST, {})
    assert name in answer.remark


def test_the_programs_flag_never_touches_ours(client: RemotingClient, name: str) -> None:
    client.produce(name, b"x", e=0, h=4)  # 4 would retain the message, 8 claim an exchange of QoS 2
    (one,) = seen(client.pull("g", name).body)
    assert one.flag == 4
    assert client.ask(codes.TOPIC_STATS, topic=name).code == codes.SUCCESS


def test_a_property_of_penstocks_is_refused(client: RemotingClient, name: str) -> None:
    answer = client.produce(name, b"x", "MQTT_TOPIC\x01a/b")
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert "MQTT_TOPIC" in answer.remark


def batched(*batch: bytes) -> bytes:
    found = b""
    for one in batch:
        properties = b"UNIQ_KEY\x01id-" + one
        size = 20 + len(one) + 2 + len(properties)
        found += struct.pack(">IIIII", size, 0, zlib.crc32(one), 0, len(one)) + one
        found += struct.pack(">H", len(properties)) + properties
    return found


def test_a_batch_is_stored_in_one_queue_in_its_order(client: RemotingClient, name: str) -> None:
    client.produce(name, b"first", e=1)
    fields = {"a": "p", "b": name, "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "m": "true"}
    answer = client.ask(codes.SEND_BATCH, batched(b"a", b"b", b"c"), **fields)
    assert answer.fields["transactionId"] == "id-a,id-b,id-c"
    assert len(answer.fields["msgId"].split(",")) == 3
    assert [one.body for one in seen(client.pull("g", name, 1).body)] == [b"first", b"a", b"b", b"c"]


def appending() -> Flow:
    """A send that waits for its append."""
    fields = {"a": "p", "b": "t", "e": "2", "i": "UNIQ_KEY\x01u"}
    flow = send(Call(Command(codes.SEND_V2, 1, fields, b"x"), idle_front(), 1, "", bytes(8)))
    assert isinstance(next(flow), Append)
    return flow


@pytest.mark.parametrize(("error", "code"), [(TimedOut("x"), 10), (NotLeader("x"), 12)])
def test_what_is_in_the_log_and_may_not_stay_is_a_status_that_clients_can_read(error: PenstockError, code: int) -> None:
    error.unknown = True
    with pytest.raises(StopIteration) as end:
        appending().throw(error)
    answer = end.value.value
    assert answer.code == code
    assert answer.fields == {"msgId": "", "queueId": "2", "queueOffset": "-1", "transactionId": "u"}


@pytest.mark.parametrize("error", [NotLeader("x"), NoQuorum("x"), StorageFull("x")])
def test_what_is_not_stored_is_an_error_after_which_clients_try_again(error: PenstockError) -> None:
    with pytest.raises(type(error)):
        appending().throw(error)
    assert refusal(Command(1), error).code == codes.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_batch_that_is_not_whole_is_refused_as_a_whole(cut: int, client: RemotingClient, name: str) -> None:
    client.produce(name, b"first", e=0)
    fields = {"a": "p", "b": name, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": "true"}
    answer = client.ask(codes.SEND_BATCH, batched(b"a", b"b")[:-cut], **fields)
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert [one.body for one in seen(client.pull("g", name).body)] == [b"first"]


@pytest.mark.parametrize("delay", ["DELAY\x011", "TIMER_DELAY_MS\x01300", "TIMER_DELAY_SEC\x011"])
def test_a_delayed_message_is_not_there_at_once_and_comes(delay: str, client: RemotingClient, name: str) -> None:
    client.produce(name, b"now", e=0)
    assert client.produce(name, b"later", delay, e=0).code == codes.SUCCESS
    assert [one.body for one in seen(client.pull("g", name).body)] == [b"now"]
    (late,) = seen(client.pull("g", name, offset=1, wait_ms=int(min(PATIENCE_S, 20) * 1000)).body)
    assert late.body == b"later"


def test_a_batch_cannot_be_delayed_nor_a_delay_be_a_word(client: RemotingClient, name: str) -> None:
    assert client.produce(name, b"x", "TIMER_DELAY_MS\x01soon").code == codes.MESSAGE_ILLEGAL


def test_a_native_reader_and_rocketmqs_clients_see_the_same(
    client: RemotingClient, node: RunningSystem, name: str
) -> None:
    for number in range(5):
        client.produce(name, b"%d" % number)
    assert bodies(node, name) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_answer_goes_to_the_client_that_asked(connect: Callable[..., RemotingClient], name: str) -> None:
    asking, answering = connect("asking"), connect("answering")
    asking.beat(producers=("p",))
    properties = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asking\x02TTL\x013000"
    asking.produce(name, b"?", properties, e=0)
    (question,) = seen(answering.pull("g", name).body)
    assert question.properties["CLUSTER"] == "DefaultCluster"
    fields = {"a": "p", "b": "DefaultCluster_REPLY_TOPIC", "e": 0, "f": 0, "g": 1, "h": 0}
    sent = answering.ask(codes.SEND_REPLY_V2, b"!", i="CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asking", **fields)
    assert sent.code == codes.SUCCESS
    pushed = asking.next_push(codes.PUSH_REPLY)
    assert (pushed.body, "c1" in pushed.fields["properties"]) == (b"!", True)


def test_an_answer_to_a_client_that_is_gone_says_so(client: RemotingClient) -> None:
    answer = client.ask(codes.SEND_REPLY_V2, b"!", i="REPLY_TO_CLIENT\x01nobody", b="t")
    assert answer.code == codes.SYSTEM_ERROR
    assert "nobody" in answer.remark


def test_a_user_makes_a_limited_number_of_topics_by_messages() -> None:
    front = idle_front()
    authority = Authority(lambda: bytes(32), lambda: 0)
    authority.set_acl(parse_acl("allow all produce *"))
    permissions = Permissions(authority, Audit(lambda: 0, lambda: 0.0), "192.0.2.1:5", Identity("ada", SCRAM))

    def asked(topic: str) -> Flow:
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "i": ""}
        fields["g"] = str(front.clock.wall_ms())
        flow = send(Call(Command(codes.SEND_V2, 1, fields, b"x"), front, 1, "192.0.2.1:5", bytes(8), permissions))
        assert next(flow) == DescribeTopic(topic)
        return flow

    first = asked("new")
    assert first.throw(TopicNotFound("none")) == Own(DescribeTopic("new", create=True))
    assert first.send(TopicDetail("new", 8, "disk", ())) == Own(ChangeTopic("new", 4))
    assert isinstance(first.send(TopicDetail("new", 4, "disk", ())), Append)
    with pytest.raises(Busy, match="user ada make more than 1 topics"):
        asked("newer").throw(TopicNotFound("none"))
