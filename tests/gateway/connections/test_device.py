"""What each packet of a client does: publications in, acknowledgements both ways, and the end of a connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from rig import Gateway

from gateway.connections.subscribing import Subscribing
from gateway.login.auth import Anonymous, Credentials, OnIdentity
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from gateway.mqtt.properties import NO_PROPERTIES, Properties
from penstock.errors import Busy, InvalidTopic, StorageFull, Unavailable
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.sessions import SaveSessions
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize(("qos", "answers"), [(0, []), (1, [Puback(7)]), (2, [Pubrec(7)])])
@pytest.mark.mqtt("3.3.4-1", old=("3.3.4-1",))
def test_a_publication_is_stored_and_answered_by_its_qos(level: int, qos: int, answers: list[object]) -> None:
    gateway = Gateway()
    client = gateway.connect(level=level)
    client.publish("a/b", b"x", qos, packet_id=7 if qos else 0)
    assert client.got() == answers
    [stored] = gateway.broker.messages()
    assert (stored.topic, stored.name, stored.body, stored.qos, stored.key) == ("a", "a/b", b"x", qos, "c")


def test_a_device_is_new_until_it_is_let_in() -> None:
    gateway = Gateway()
    client = gateway.open()
    assert client.device.is_new()
    gateway.broker.holds_replies = True
    client.send(Connect("c"))
    assert client.device.is_new(), "its CONNECT has no answer yet"
    gateway.broker.holds_replies = False
    gateway.round()
    assert not client.device.is_new()


@pytest.mark.mqtt("4.3.2-4", "4.3.3-8", old=("4.3.2-2", "4.3.3-2"))
def test_nothing_is_acknowledged_before_the_broker_has_answered() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a", b"first", 1, packet_id=1)
    client.got()
    gateway.broker.holds_replies = True
    client.publish("a", b"x", 1, packet_id=2)
    client.publish("a", b"x", 2, packet_id=3)
    assert client.got() == []
    gateway.broker.release()
    gateway.round()
    assert client.got() == [Puback(2), Pubrec(3)]


@pytest.mark.mqtt("4.3.3-10", "4.3.3-11", "4.3.3-12", old=("4.3.3-2",))
def test_a_qos_2_id_is_stored_once_until_it_is_released() -> None:
    gateway = Gateway()
    client = gateway.connect()
    for dup in (False, True):
        client.publish("a", b"x", 2, packet_id=5, dup=dup)
    assert client.got() == [Pubrec(5), Pubrec(5)]
    client.send(Pubrel(5))
    assert client.got() == [Pubcomp(5)]
    assert gateway.broker.bodies() == [b"x"]
    client.publish("a", b"y", 2, packet_id=5)
    assert gateway.broker.bodies() == [b"x", b"y"]


@pytest.mark.mqtt("4.3.3-10", old=("4.3.3-2",))
def test_a_qos_2_id_that_is_sent_again_on_a_new_connection_is_stored_once() -> None:
    gateway = Gateway()
    first = gateway.connect(clean_start=False)
    first.publish("a", b"0")
    gateway.broker.holds_replies = True
    first.publish("a", b"x", 2, packet_id=5)
    first.cut()
    second = gateway.open()
    second.send(Connect("c", clean_start=False), Publish("a", b"x", 2, packet_id=5, dup=True))
    assert second.got() == []
    gateway.broker.holds_replies = False
    gateway.round()
    assert second.got() == [Connack(True, 0), Pubrec(5)]
    assert gateway.broker.bodies() == [b"0", b"x"]


@pytest.mark.mqtt("3.6.2-1")
def test_an_unknown_pubrel_is_completed_with_a_reason_only_for_mqtt5() -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    for client in (old, new):
        client.send(Pubrel(9))
    assert old.got() == [Pubcomp(9)]
    assert new.got() == [Pubcomp(9, 0x92)]


def test_a_new_topic_is_looked_up_once_and_its_publications_wait() -> None:
    gateway = Gateway()
    client = gateway.connect()
    asked = len(gateway.broker.made(QueryRoute))
    gateway.broker.holds_replies = True
    client.send(*[Publish("new/x", bytes([at]), 1, packet_id=at + 1) for at in range(5)])
    assert client.got() == []
    assert not client.is_read
    gateway.broker.holds_replies = False
    gateway.round()
    assert client.got() == [Puback(at + 1) for at in range(5)]
    assert client.is_read
    assert gateway.broker.bodies() == [bytes([at]) for at in range(5)]
    assert [request.topic for request in gateway.broker.made(QueryRoute)[asked:]] == ["new", ""]


def test_a_topic_that_a_broker_refuses_to_make_is_refused_for_good() -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    gateway.broker.refuses[DescribeTopic] = Busy("topics_max")
    for client in (old, new):
        client.publish("t", b"x", 1, packet_id=1)
    assert new.got() == [Puback(1, 0x97, Properties(reason_string="topics_max"))]
    assert old.is_closed


def test_the_route_of_a_topic_is_looked_up_again_after_a_refusal() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    gateway.broker.refuses[DescribeTopic] = Busy("topics_max")
    client.publish("t", b"x", 1, packet_id=1)
    gateway.broker.refuses.clear()
    client.publish("t", b"x", 1, packet_id=2)
    assert client.got() == [Puback(1, 0x97, Properties(reason_string="topics_max")), Puback(2)]


@pytest.mark.parametrize(("error", "reason"), [(Busy("x"), 0x97), (StorageFull("x"), 0x97), (InvalidTopic("x"), 0x90)])
@pytest.mark.mqtt("3.4.2-1", "3.5.2-1", "4.3.3-9")
def test_mqtt5_is_told_why_a_record_was_not_stored(error: Exception, reason: int) -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.publish("a", b"warm", 1, packet_id=1)
    gateway.broker.refused_records = {1: error}  # type: ignore[dict-item]
    client.got()
    client.send(*[Publish("a", b"x", qos, packet_id=at) for at, qos in ((2, 1), (3, 2), (4, 1))])
    why = {StorageFull.code: Properties(reason_string="the disk is full")}
    expected = Pubrec(3, reason, why.get(error.code, NO_PROPERTIES))  # type: ignore[attr-defined]
    assert client.got() == [Puback(2), expected, Puback(4)]
    client.publish("a", b"again", 2, packet_id=3)
    assert client.got() == [Pubrec(3)]


LEVEL = Properties(user_properties=(("penstock-level", "true"),))


def told(level: str) -> Properties:
    return Properties(user_properties=(("penstock-level", level),))


@pytest.mark.mqtt("3.4.2-1", "3.5.2-1")
def test_who_asks_for_it_is_told_the_level_that_each_message_has_reached() -> None:
    gateway = Gateway()
    client, other = gateway.connect("c", level=5, properties=LEVEL), gateway.connect("d", level=5)
    client.publish("a", b"x", 1, packet_id=1)  # through the codec
    client.publish("a", b"x", 1, packet_id=2)  # the straight way, alone
    client.send(*[Publish("a", b"x", qos, packet_id=at) for at, qos in ((3, 1), (0, 0), (4, 1), (5, 2))])
    assert client.got() == [*[Puback(at, 0, told("disk")) for at in (1, 2, 3, 4)], Pubrec(5, 0, told("disk"))]
    gateway.broker.ask(CreateTopic("b", 1, "cache"))
    client.publish("b", b"x", 1, packet_id=1)
    other.publish("b", b"x", 1, packet_id=1)
    assert client.got() == [Puback(1, 0, told("cache"))]
    assert other.got() == [Puback(1)]


def test_a_refusal_and_an_acknowledgement_that_is_sent_again_say_no_level() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5, properties=LEVEL)
    client.publish("a", b"x", 2, packet_id=1)
    client.publish("a", b"x", 2, packet_id=1, dup=True)
    assert client.got() == [Pubrec(1, 0, told("disk")), Pubrec(1)]
    gateway.broker.refused_records = {0: InvalidTopic("x")}
    client.publish("a", b"x", 1, packet_id=2)
    assert client.got() == [Puback(2, 0x90)]


def test_a_connect_that_asks_for_what_there_is_not_is_told_so() -> None:
    client = Gateway().open(5)
    client.send(Connect("c", level=5, properties=Properties(user_properties=(("penstock-levels", "true"),))))
    why = "a CONNECT has no option penstock-levels; there is penstock-level"
    assert client.got() == [Connack(False, 0x83, Properties(reason_string=why))]
    assert client.is_closed


def test_a_record_of_unknown_fate_is_never_acknowledged_and_its_client_closed() -> None:
    gateway = Gateway()
    client, bystander = gateway.connect(level=5), gateway.connect("other", level=5)
    client.publish("a", b"warm", 1, packet_id=1)
    client.got()
    lost = Unavailable("the connection broke")
    lost.unknown = True
    gateway.broker.refuses[AppendRuns] = lost
    client.publish("a", b"x", 1, packet_id=2)
    assert client.got() == [Disconnect(0x89)]
    assert client.is_closed
    assert not bystander.is_closed


def test_qos_0_of_unknown_fate_is_no_reason_to_close() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a")
    lost = Unavailable("the connection broke")
    lost.unknown = True
    gateway.broker.refuses[AppendRuns] = lost
    client.publish("a")
    assert not client.is_closed


def test_a_client_with_too_much_unstored_is_not_read() -> None:
    gateway = Gateway(unstored_bytes_max=10_000)
    client = gateway.connect()
    client.publish("a")
    gateway.broker.holds_replies = True
    client.send(*[Publish("a", bytes(1000)) for _ in range(20)])
    assert not client.is_read
    gateway.broker.holds_replies = False
    gateway.round()
    assert client.is_read
    assert client.device.unstored == 0


def test_a_client_whose_qos_0_messages_were_lost_is_read_again() -> None:
    gateway = Gateway(unstored_bytes_max=10_000)
    client = gateway.connect()
    client.publish("a")
    lost = Unavailable("the connection broke")
    lost.unknown = True
    gateway.broker.refuses[AppendRuns] = lost
    client.send(*[Publish("a", bytes(1000)) for _ in range(20)])
    assert client.is_read
    assert client.device.unstored == 0


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_client_with_too_many_filters_without_an_answer_is_not_read(is_lasting: bool) -> None:
    gateway = Gateway(unstored_bytes_max=10_000)
    client = gateway.connect("c", clean_start=not is_lasting)
    gateway.broker.holds = (SaveSessions,)
    gateway.broker.holds_replies = not is_lasting
    asked: list[Subscribe | Unsubscribe] = [Subscribe(at, (Subscription(f"a/{at}"),)) for at in range(1, 31)]
    answers: list[object] = [Suback(at, (0,)) for at in range(1, 31)]
    if is_lasting:
        asked += [Unsubscribe(at, ("b",)) for at in range(31, 41)]
        answers += [Unsuback(at) for at in range(31, 41)]
    client.send(*asked[:10])
    assert client.is_read
    client.send(*asked[10:])
    assert not client.is_read
    gateway.broker.let_go()
    gateway.broker.holds_replies = False
    for _ in range(3):
        gateway.pass_time(1)
    assert sorted(client.got(), key=str) == sorted(answers, key=str)
    assert client.is_read


@pytest.mark.mqtt("3.3.4-7")
def test_a_client_that_exceeds_our_receive_maximum_is_told_and_closed() -> None:
    gateway = Gateway(receive_max=3)
    client = gateway.connect(level=5)
    client.publish("a")
    gateway.broker.holds_replies = True
    client.send(*[Publish("a", b"", 1 + at % 2, packet_id=at + 1) for at in range(3)])
    assert not client.is_closed
    client.publish("a", b"", 1, packet_id=9)
    assert client.got() == [Disconnect(0x93, Properties(reason_string="the limit receive_max is reached"))]
    assert client.is_closed


def test_at_a_lenient_listener_a_client_that_exceeds_our_receive_maximum_is_served_and_counted() -> None:
    gateway = Gateway(receive_max=3)
    tally = gateway.connections.counters.of("tcp")
    tally.is_lenient = True
    client = gateway.connect(level=5)
    client.publish("a")
    gateway.broker.holds_replies = True
    client.send(*[Publish("a", b"", 1, packet_id=at + 1) for at in range(3)])  # the straight way
    assert tally.over_receive_max == 0
    client.send(*[Publish("a", b"", 1, packet_id=at + 4) for at in range(3)])
    assert tally.over_receive_max == 1
    client.publish("a", b"", 2, packet_id=9)
    assert tally.over_receive_max > 1
    assert client.got() == []
    gateway.broker.release()
    gateway.pass_time(0)
    assert client.got() == [*[Puback(at + 1) for at in range(6)], Pubrec(9)]
    assert gateway.quotas.refused["receive_max"] == 0


@pytest.mark.parametrize("name", ["/".join("a" * 129), "a\x05b"])
def test_a_name_beyond_our_limits_is_refused(name: str) -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    for client in (old, new):
        client.publish(name, b"", 1, packet_id=1)
    assert new.got() in ([Puback(1, 0x90)], [Disconnect(0x81)])
    assert old.is_closed
    assert gateway.broker.messages() == []
    assert gateway.upstream.unauthorized == 0


@pytest.mark.parametrize("name", ["日" * 30, "é" * 43 + "/x", "a" * 256, "a" * 1025, "a" * 65_533 + "/b"])
def test_a_name_of_any_length_is_stored(name: str) -> None:
    gateway = Gateway()
    for level in (3, 4, 5):
        client = gateway.connect(f"c{level}", level=level)
        client.publish(name, b"x", 1, packet_id=1)
        assert client.got() == [Puback(1)]
        client.publish(name, b"y", 2, packet_id=2)
        assert client.got() == [Pubrec(2)]
    assert [message.name for message in gateway.broker.messages()] == [name] * 6


@pytest.mark.mqtt(old=("3.3.5-2",))
def test_nobody_publishes_to_the_systems_topics() -> None:
    gateway = Gateway()
    old, new = gateway.connect("old"), gateway.connect("new", level=5)
    for client in (old, new):
        client.send(Publish("$SYS/x", b"", 1, packet_id=1), Publish("$SYS/x", b"", 2, packet_id=2))
    assert new.got() == [Puback(1, 0x87), Pubrec(2, 0x87)]
    assert old.got() == [Puback(1), Pubrec(2)]
    assert gateway.broker.messages() == []
    assert (gateway.upstream.dropped, gateway.upstream.unauthorized) == (4, 4)


@pytest.mark.mqtt("3.3.2-12")
def test_a_topic_alias_stands_for_the_name_it_was_given_with() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    alias = Properties(topic_alias=3)
    client.send(Publish("a/b", b"1", properties=alias), Publish("", b"2", properties=alias))
    assert [message.name for message in gateway.broker.messages()] == ["a/b", "a/b"]
    client.publish("", b"3", properties=Properties(topic_alias=65))
    assert client.got() == [Disconnect(0x94, Properties(reason_string="the limit topic_alias_max is reached"))]


@pytest.mark.mqtt("3.3.2.3.4")
def test_an_alias_that_was_never_given_is_a_protocol_error() -> None:
    client = Gateway().connect(level=5)
    client.publish("", b"", properties=Properties(topic_alias=3))
    assert client.got() == [Disconnect(0x82)]


@pytest.mark.mqtt("3.12.4-1", old=("3.12.4-1",))
def test_a_ping_is_answered() -> None:
    client = Gateway().connect()
    client.send(Pingreq())
    assert client.got() == [Pingresp()]


@pytest.mark.mqtt("4.13.1-1", "4.13.2-1", old=("4.8.0-1",))
def test_garbage_closes_the_connection_with_the_reason_and_nobody_else_notices() -> None:
    gateway = Gateway()
    client, old, bystander = gateway.connect("x", level=5), gateway.connect("o"), gateway.connect("b")
    client.send_bytes(b"\x00\x00")
    old.send_bytes(b"\xff\xff\xff\xff\xff\xff")
    assert [type(packet) for packet in client.got()] == [Disconnect]
    assert client.is_closed
    assert old.is_closed
    assert old.got() == []
    bystander.send(Pingreq())
    assert bystander.got() == [Pingresp()]


def test_what_came_before_the_garbage_is_carried_out() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.send_bytes(b"\x30\x04\x00\x01ax" + b"\x00\x00")
    assert client.is_closed
    assert gateway.broker.bodies() == [b"x"]


@pytest.mark.mqtt("3.1.0-2", old=("3.1.0-2",))
def test_a_second_connect_is_a_protocol_error() -> None:
    client = Gateway().connect(level=5)
    client.send(Connect("c", level=5))
    assert client.got() == [Disconnect(0x82)]
    assert client.is_closed


@pytest.mark.mqtt("3.1.0-1", old=("3.1.0-1",))
def test_nothing_is_carried_out_before_connect() -> None:
    gateway = Gateway()
    client = gateway.open()
    client.publish("a", b"x")
    assert client.is_closed
    assert client.got() == []
    assert gateway.broker.messages() == []


def test_packets_may_follow_connect_at_once() -> None:
    gateway = Gateway()
    client = gateway.open()
    client.send(Connect("c"), Publish("a", b"x", 1, packet_id=1))
    assert client.got()[1:] == [Puback(1)]


def test_a_subscriber_gets_what_it_publishes_in_the_same_breath_but_not_what_it_did_before() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a/1")
    client.send(Publish("a/1", b"before"), Subscribe(1, (Subscription("a/#"),)), Publish("a/1", b"after"))
    assert client.payloads() == [b"after"]


def test_properties_as_large_as_a_packet_may_have_are_stored_with_the_longest_name() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    long = Properties(response_topic="r" * 65_000, correlation_data=bytes(65_000))
    client.subscribe("#", qos=1)
    for qos in (0, 1, 2):
        client.publish("a" * 65_535, b"", qos, packet_id=qos, properties=long)
    got = [packet for packet in client.got() if isinstance(packet, Publish)]
    assert [(packet.topic, packet.properties.response_topic) for packet in got] == [("a" * 65_535, "r" * 65_000)] * 3
    assert {packet.properties.correlation_data for packet in got} == {bytes(65_000)}


@pytest.mark.mqtt("3.14.4-3")
def test_a_disconnect_may_ask_for_what_the_connect_asked_for_also_where_it_was_not_granted() -> None:
    gateway = Gateway(session_expiry_s_max=0)
    asked = Properties(session_expiry_interval=100)
    client = gateway.connect("c", level=5, properties=asked, will=Will("w", b"gone"))
    client.send(Disconnect(0, asked))
    assert (client.got(), gateway.broker.messages()) == ([], [])


@pytest.mark.mqtt("3.14.2-2")
def test_disconnect_with_a_longer_expiry_than_zero_is_a_protocol_error() -> None:
    client = Gateway().connect(level=5)
    client.send(Disconnect(0, Properties(session_expiry_interval=10)))
    assert client.got() == [Disconnect(0x82)]


class _Slow(Anonymous):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__("everyone")
        self.waiting: list[Callable[[], None]] = []

    def connect(self, shown: Credentials, done: OnIdentity) -> None:
        self.waiting.append(partial(super().connect, shown, done))


def test_what_a_client_sends_behind_its_connect_waits_for_the_answer_to_it() -> None:
    authenticator = _Slow()
    gateway = Gateway(authenticator)
    client = gateway.open(5)
    client.send(Connect("c", level=5), Publish("a", b"x", 1, packet_id=1), Pingreq())
    assert client.got() == []
    assert not client.is_read
    gateway.rounds.begin()
    authenticator.waiting.pop()()
    gateway.round()
    connack, *others = client.got()
    assert isinstance(connack, Connack)
    assert sorted(map(str, others)) == sorted(map(str, [Puback(1), Pingresp()]))
    assert client.is_read
    assert gateway.broker.bodies() == [b"x"]


def test_a_client_that_goes_before_it_is_answered_leaves_nothing_behind() -> None:
    authenticator = _Slow()
    gateway = Gateway(authenticator)
    client = gateway.open(5)
    client.send(Connect("c", level=5), Publish("a", b"x", 1, packet_id=1))
    client.cut()
    gateway.rounds.begin()
    authenticator.waiting.pop()()
    gateway.round()
    assert (len(gateway.sessions), gateway.connections.half_open, gateway.broker.bodies()) == (0, 0, [])


def test_nothing_more_of_a_chunk_is_published_when_an_answer_within_it_ends_the_connection() -> None:
    gateway = Gateway(append_bytes_max=1024)
    client = gateway.connect("c")
    client.publish("t", b"the route is known")
    gateway.broker.answers_at_once = True
    gateway.broker.refused_records = {0: InvalidTopic("no")}
    client.send(*[Publish("t", bytes(16_000 + at), 1, packet_id=at + 1) for at in range(100)])
    assert client.is_closed
    assert 1 < len(gateway.broker.bodies()) < 80, "what went with the refused one is stored, nothing behind it"


@pytest.mark.interpreted
@pytest.mark.parametrize("expiry_s", [0, 60])
def test_an_error_that_nobody_has_foreseen_behind_a_connect_ends_that_connection_alone(
    monkeypatch: pytest.MonkeyPatch, expiry_s: int
) -> None:
    """What comes behind a CONNECT is carried out as an answer is taken in, where an exception would end the server."""

    def stumble(*_: object) -> None:
        raise RuntimeError("planted")

    gateway = Gateway()
    other = gateway.connect("other", level=5)
    monkeypatch.setattr(Subscribing, "_unfit", stumble)
    client = gateway.open(5)
    properties = Properties(session_expiry_interval=expiry_s)
    client.send(Connect("c", level=5, properties=properties), Subscribe(1, (Subscription("a"),)))
    assert client.is_closed
    assert gateway.connections.failures == 1
    other.send(Pingreq())
    assert other.got() == [Pingresp()]
