"""What waits for its topic, and what waits behind it."""

from __future__ import annotations

import pytest
from rig import Gateway

from gateway.mqtt.packets import Packet, Puback, Publish
from gateway.mqtt.properties import Properties
from gateway.publishing.placing import IDLE_S
from gateway.sessions.session_state import Will
from penstock.errors import NoRoute, NotAllowed, PenstockError, TopicNotFound, Unavailable
from penstock.protocol.message import NEVER
from penstock.protocol.requests.messages import AppendRuns
from penstock.protocol.requests.routes import QueryRoute
from penstock.protocol.requests.topics import DeleteTopic, DescribeTopic


def sent(*names: str, qos: int = 1) -> list[Packet]:
    """A PUBLISH to each, with its number as id and payload."""
    return [Publish(name, b"%d" % at, qos, packet_id=at if qos else 0) for at, name in enumerate(names, 1)]


def nothing_waits(gateway: Gateway) -> bool:
    placing = gateway.upstream._placing
    return not placing._queues and not placing._unfound and not any(one.waiting for one in placing._topics.values())


def test_all_topics_of_what_waits_are_looked_up_at_once_and_it_is_stored_in_its_order() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("known/x", b"warm")
    gateway.broker.holds_replies = True
    client.send(*sent("a/x", "b/x", "known/x", "a/y", "c/x"))
    asked = [request.topic for request in gateway.broker.made(QueryRoute) if request.topic]
    assert asked[-3:] == ["a", "b", "c"]
    assert not client.is_read
    gateway.broker.holds_replies = False
    gateway.round()
    assert gateway.broker.bodies() == [b"warm", b"1", b"2", b"3", b"4", b"5"]
    assert client.got() == [Puback(number) for number in range(1, 6)]
    assert client.is_read
    assert nothing_waits(gateway)


def test_other_clients_are_not_kept_waiting() -> None:
    gateway = Gateway()
    waits, other = gateway.connect("waits"), gateway.connect("other")
    other.publish("known/x", b"warm")
    gateway.broker.refuses[QueryRoute] = Unavailable("away")
    waits.send(*sent("a/x", "known/x"))
    other.publish("known/x", b"other", 1, packet_id=1)
    assert other.got() == [Puback(1)]
    assert gateway.broker.bodies() == [b"warm", b"other"]
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"other", b"1", b"2"]
    assert waits.got() == [Puback(1), Puback(2)]


def test_what_is_behind_a_message_that_no_broker_takes_goes_on() -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.publish("known/x", b"warm")
    gateway.broker.refuses[DescribeTopic] = TopicNotFound("none are made")
    client.send(*sent("a/x", "known/x", "a/y", "b/x", "known/x"))
    assert gateway.broker.bodies() == [b"warm", b"2", b"5"]
    assert client.got() == [Puback(1, 0x90), Puback(2), Puback(3, 0x90), Puback(4, 0x90), Puback(5)]
    assert client.is_read
    assert nothing_waits(gateway)


def test_what_a_closed_connection_has_left_behind_a_message_that_is_given_up_is_not_lost() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("known/x", b"warm")
    gateway.broker.refuses[QueryRoute] = NoRoute("not yet")
    client.send(*sent("a/x"), Publish("known/x", b"zero"))
    client.cut()
    assert gateway.broker.bodies() == [b"warm"]
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"zero"]
    assert gateway.upstream.dropped == 1
    assert nothing_waits(gateway)


def test_an_epoch_that_ends_takes_with_it_what_waits_of_connections_that_are_over() -> None:
    gateway = Gateway()
    stays, leaves = gateway.connect("stays"), gateway.connect("leaves")
    stays.publish("known/x", b"warm")
    gateway.broker.refuses[QueryRoute] = NoRoute("not yet")
    for client in (stays, leaves):
        client.send(*sent("a/x", "known/x"))
    leaves.cut()
    gateway.upstream.hold()
    gateway.upstream.go_on("another")
    assert gateway.upstream.dropped == 2
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"1", b"2"]
    assert stays.got() == [Puback(1), Puback(2)]


def test_a_will_without_an_executor_waits_behind_its_client_and_is_given_up_with_its_topic() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    client.publish("known/x", b"warm")
    gateway.broker.holds_replies = True
    client.send(*sent("a/x"))
    gateway.upstream.publish_will("c", Will("known/x", b"will", 0, False, 0, NEVER, b""), None)
    gateway.upstream.publish_will("other", Will("b/x", b"lost", 0, False, 0, NEVER, b""), None)
    gateway.round()
    assert [request.count for request in gateway.broker.made(AppendRuns)] == [1]
    gateway.broker.refuses[DescribeTopic] = TopicNotFound("none are made")
    gateway.broker.holds_replies = False
    gateway.round()
    assert gateway.broker.bodies() == [b"warm", b"will"]
    assert gateway.upstream.dropped == 2
    assert nothing_waits(gateway)


TOLD = Properties(reason_string="the limit client_topics_per_min_max is reached")


def test_a_client_that_makes_too_many_topics_is_told_the_limit_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = Gateway(client_topics_per_min_max=2)
    new, old, other = gateway.connect("new", level=5), gateway.connect("old"), gateway.connect("other")
    new.send(*sent("a/x", "b/x", "c/x", "a/y"))
    assert new.got() == [Puback(1), Puback(2), Puback(3, 0x97, TOLD), Puback(4)]
    with caplog.at_level("INFO"):
        old.send(*sent("d/x", "e/x", "f/x"))
    assert old.got() == [Puback(1), Puback(2)]
    assert old.is_closed
    assert "the limit client_topics_per_min_max is reached" in caplog.text
    other.publish("c/x", b"other", 1, packet_id=1)
    assert other.got() == [Puback(1)], "its own limit"
    new.publish("c/x", b"again", 1, packet_id=3)
    assert new.got() == [Puback(3)], "the topic is there now"
    assert gateway.quotas.refused["client_topics_per_min_max"] == 2
    gateway.pass_time(30)
    new.publish("g/x", b"later", 1, packet_id=5)
    assert new.got() == [Puback(5)]
    assert nothing_waits(gateway)


def test_topics_that_are_there_count_for_nobody() -> None:
    first = Gateway()
    maker = first.connect("maker")
    maker.send(*sent(*[f"t{n}/x" for n in range(10)]))
    later = Gateway(beside=first, name="later", client_topics_per_min_max=1)
    client = later.connect("client", level=5)
    client.send(*sent(*[f"t{n}/y" for n in range(10)], "new/x"))
    assert client.got() == [Puback(number) for number in range(1, 12)]


def test_of_several_clients_that_wait_for_a_topic_any_may_make_it() -> None:
    gateway = Gateway(client_topics_per_min_max=1)
    spent, fresh = gateway.connect("spent", level=5), gateway.connect("fresh", level=5)
    spent.publish("a/x", b"", 1, packet_id=1)
    gateway.broker.holds_replies = True
    spent.publish("b/x", b"1", 1, packet_id=2)
    fresh.publish("b/x", b"2", 1, packet_id=1)
    gateway.broker.holds_replies = False
    gateway.round()
    assert (spent.got(), fresh.got()) == ([Puback(1), Puback(2)], [Puback(1)])


def test_the_broker_hears_whether_a_topic_is_made_for_a_user() -> None:
    gateway = Gateway()
    gateway.connect("c").publish("a/x", b"")
    gateway.wills.publish("gone", Will("b/x", b"", 1, False, 0, NEVER, b""))
    gateway.wills.publish("known", Will("c/x", b"", 1, False, 0, NEVER, b"", "alice"))
    gateway.round()
    assert {(one.topic, one.is_anonymous) for one in gateway.broker.made(DescribeTopic) if one.create} >= {
        ("a", True),
        ("b", True),
        ("c", False),
    }


def test_wills_make_no_more_topics_than_their_clients_may() -> None:
    gateway = Gateway(client_topics_per_min_max=1)
    gateway.connect("c").publish("a/x", b"")
    gateway.wills.publish("c", Will("b/x", b"", 1, False, 0, NEVER, b""))
    gateway.round()
    assert len(gateway.broker.messages()) == 1
    assert gateway.upstream.dropped == 1
    assert nothing_waits(gateway)


def looked_up(gateway: Gateway, topic: str) -> int:
    return [request.topic for request in gateway.broker.made(QueryRoute)].count(topic)


def test_a_topic_that_was_not_used_for_long_is_looked_up_anew_and_made_within_the_limits() -> None:
    gateway = Gateway(client_topics_per_min_max=1)
    client = gateway.connect(level=5)
    client.send(*sent("a/x"))
    gateway.broker.ask(DeleteTopic("a"))
    gateway.pass_time(3 * IDLE_S)
    client.send(*sent("b/x"))
    assert client.got() == [Puback(1), Puback(1)]
    client.publish("a/x", b"late", 1, packet_id=1)
    assert looked_up(gateway, "a") == 2
    assert client.got() == [Puback(1, 0x97, TOLD)]
    assert nothing_waits(gateway)


def test_where_no_name_server_answers_a_topic_is_where_it_was() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("a/x", b"1", 1, packet_id=1)
    gateway.pass_time(3 * IDLE_S)
    gateway.broker.refuses[QueryRoute] = Unavailable("away")
    client.publish("a/x", b"2", 1, packet_id=2)
    assert client.got() == [Puback(1), Puback(2)]
    assert gateway.broker.bodies() == [b"1", b"2"]
    assert nothing_waits(gateway)


@pytest.mark.parametrize(("error", "code"), [(TopicNotFound("deleted"), 0x90), (NotAllowed("in maintenance"), 0x97)])
def test_a_topic_that_its_broker_does_not_have_or_take_messages_for_is_looked_up_anew(
    error: PenstockError, code: int
) -> None:
    gateway = Gateway()
    client = gateway.connect(level=5)
    client.publish("a/x", b"1", 1, packet_id=1)
    gateway.broker.refused_records = {0: error}
    client.publish("a/x", b"2", 1, packet_id=2)
    assert client.got() == [Puback(1), Puback(2, code)]
    client.publish("a/x", b"3", 1, packet_id=3)
    assert (looked_up(gateway, "a"), client.got()) == (2, [Puback(3)])


def test_what_stands_behind_others_while_its_topic_is_forgotten_is_looked_up_when_its_turn_comes() -> None:
    gateway = Gateway()
    client = gateway.connect()
    client.publish("known/x", b"warm")
    gateway.broker.refuses[QueryRoute] = Unavailable("away")
    client.send(*sent("a/x", "known/x"))
    gateway.pass_time(3 * IDLE_S)
    gateway.broker.refuses.clear()
    gateway.pass_time(1)
    assert gateway.broker.bodies() == [b"warm", b"1", b"2"]
    assert client.got() == [Puback(1), Puback(2)]
    assert nothing_waits(gateway)
