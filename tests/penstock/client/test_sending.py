"""Where messages go, how they are batched and what they end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.sending import (
    BATCH_BYTES_MAX,
    Outgoing,
    Receipt,
    UniqueIds,
    append_of,
    as_message,
    batches,
    check_makeable,
    choose,
    final_error,
    maker_of,
    nobody_has,
    once_more,
    prepare,
    receipts,
    settle,
)
from penstock.errors import (
    Busy,
    InternalError,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    SendManyError,
    TimedOut,
    TooLarge,
    Unavailable,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Appended, Placed, Refused
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from topicmap.queues import TopicMap, encode_level

BROKERS = [BrokerRoute("a", "10.0.0.1:1", 4), BrokerRoute("b", "10.0.0.2:1", 4)]


def outgoing(count: int = 3, size: int = 10) -> list[Outgoing]:
    return [prepare(Message("t", bytes(size)), str(at), TopicMap(), 1) for at in range(count)]


def test_a_message_gets_its_id_and_birth_time() -> None:
    one = prepare(Message("t", b"x", key="k"), "id-1", TopicMap(), 77)
    message = decode_message(one.record)
    assert (message.id, message.born_ms, message.topic, message.key) == ("id-1", 77, "t", "k")
    assert (one.id, one.topic, one.key) == ("id-1", "t", "k")


def test_an_id_that_the_caller_gave_stays() -> None:
    assert prepare(Message("t", b"x", id="mine"), "id-1", TopicMap(), 0).id == "mine"


def test_an_mqtt_name_without_a_topic_is_placed_by_the_topic_map() -> None:
    one = prepare(Message(mqtt_topic="plant/a/temp", body=b"x"), "i", TopicMap(), 0)
    assert (one.topic, one.key) == TopicMap().place("plant/a/temp")
    assert decode_message(one.record).mqtt_topic == "plant/a/temp"
    assert prepare(Message("own", b"", mqtt_topic="plant/a"), "i", TopicMap(), 0).topic == "own"


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("temp%20x", "temp%20x"),
        ("température", "temp%C3%A9rature"),
        ("a b", "a%20b"),
        ("x" * 300, encode_level("x" * 300)),
    ],
)
def test_a_topic_of_any_first_level_is_stored_where_mqtt_stores_it_and_keeps_its_name(name: str, topic: str) -> None:
    one = prepare(Message(name, b"x"), "i", TopicMap(), 0)
    message = decode_message(one.record)
    assert one.topic == message.topic == topic
    assert message.name == name
    other = decode_message(prepare(Message(name, b"x", mqtt_topic="own/name"), "i", TopicMap(), 0).record)
    assert (other.topic, other.name) == (topic, "own/name")


@pytest.mark.parametrize("name", ["a/b", "a+", "#", "a\n", "\ud800", "x" * 65_536])
def test_a_name_that_is_no_first_level_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidTopic, match="one level of an MQTT name"):
        prepare(Message(name, b"x"), "i", TopicMap(), 0)


def test_a_key_of_bytes_stays_with_the_broker_of_the_same_text() -> None:
    for key in map(str, range(50)):
        assert choose(key.encode(), BROKERS, 0) == choose(key, BROKERS, 0)
    assert {choose(bytes([255, n]), BROKERS, 0).broker for n in range(50)} == {"a", "b"}


def test_what_is_too_large_is_refused_at_once() -> None:
    with pytest.raises(TooLarge):
        prepare(Message("t", bytes(5_000_000)), "i", TopicMap(), 0)


def test_a_key_stays_with_its_broker_even_if_that_failed() -> None:
    for key in map(str, range(50)):
        first = choose(key, BROKERS, 0)
        assert first == choose(key, BROKERS[::-1], 7, [first.address])


def test_a_key_stays_with_its_broker_even_if_that_listens_elsewhere() -> None:
    for key in map(str, range(50)):
        moved = [BrokerRoute(one.broker, f"0.0.0.{9 - at}:1", one.queues) for at, one in enumerate(BROKERS)]
        assert choose(key, moved, 0).broker == choose(key, BROKERS, 0).broker


def test_keys_use_all_brokers_and_on_each_of_them_all_queues() -> None:
    import zlib

    used = {(choose(key, BROKERS, 0).broker, zlib.crc32(key.encode()) % 4) for key in map(str, range(500))}
    assert len(used) == 8


def test_messages_without_a_key_take_turns_and_go_round_a_failed_broker() -> None:
    assert {choose("", BROKERS, turn).broker for turn in range(4)} == {"a", "b"}
    assert {choose("", BROKERS, turn, ["10.0.0.1:1"]).broker for turn in range(4)} == {"b"}
    assert choose("", BROKERS[:1], 0, ["10.0.0.1:1"]).broker == "a"


def test_a_broker_that_takes_nothing_is_never_chosen() -> None:
    closed = [BROKERS[0]._replace(writable=False), BROKERS[1]]
    assert {choose(key, closed, 0).broker for key in ["", "x", "y"]} == {"b"}
    with pytest.raises(NoRoute):
        choose("", closed[:1], 0)


def test_batches_keep_order_and_stay_under_the_limit() -> None:
    many = outgoing(10, 300_000)
    cut = list(batches(many))
    assert [one for batch in cut for one in batch] == many
    assert all(sum(len(one.record) for one in batch) <= BATCH_BYTES_MAX for batch in cut)
    assert len(cut) == 4


def test_a_message_longer_than_a_batch_goes_alone_and_nothing_gives_no_batch() -> None:
    assert [len(batch) for batch in batches(outgoing(2, 2_000_000))] == [1, 1]
    assert list(batches([])) == []


def test_an_append_holds_the_records_end_to_end() -> None:
    many = outgoing(2)
    assert append_of(many) == append_of(tuple(many))
    assert append_of(many).body == many[0].record + many[1].record


def test_each_message_gets_its_place_or_its_refusal() -> None:
    many = outgoing(3)
    placed = (Placed(1, 5, 0), Placed(0, 0, 0), Placed(2, 9, 0))
    settle(many, "a", Appended("disk", placed, (Refused(1, InvalidTopic.code, "no"),)))
    assert many[0].receipt == Receipt("0", MessageQueue("a", "t", 1), 5, "disk")
    assert isinstance(many[1].error, InvalidTopic)
    assert many[2].receipt is not None
    assert many[2].receipt.offset == 9


@pytest.mark.parametrize("answer", [Done(), Appended("disk", (Placed(0, 0, 0),))])
def test_an_answer_that_does_not_fit_leaves_the_outcome_unknown(answer: Done | Appended) -> None:
    many = outgoing(2)
    settle(many, "a", answer)
    assert [isinstance(one.error, InternalError) and one.unknown for one in many] == [True, True]


def test_only_what_may_succeed_is_sent_once_more() -> None:
    many = outgoing(3)
    many[0].fail(Busy(""))
    many[1].fail(InvalidTopic(""))
    assert once_more(many) == many[:1]


@pytest.mark.parametrize("tell", [check_makeable, nobody_has])
def test_who_takes_an_mqtt_name_for_a_topic_is_told_where_it_is(tell: Callable[[str], object]) -> None:
    with pytest.raises(InvalidTopic) as raised:
        tell("sensors/d7/temperature")
    assert "in the topic a, its first level" in raised.value.hint


def test_who_asks_for_a_topic_that_is_not_there_is_told_how_to_make_it() -> None:
    assert "penstock topic create orders" in nobody_has("orders").hint


def test_everybody_has_a_topic_made_by_the_same_broker_and_all_brokers_make_some() -> None:
    topics = [f"topic-{number}" for number in range(20)]
    assert [maker_of(topic, BROKERS) for topic in topics] == [maker_of(topic, BROKERS[::-1]) for topic in topics]
    assert {maker_of(topic, BROKERS).broker for topic in topics} == {"a", "b"}


def test_an_unknown_attempt_makes_the_whole_outcome_unknown() -> None:
    one = outgoing(1)[0]
    one.fail(TimedOut("first"))
    one.fail(Busy("second", hint="h"))
    error = final_error(one)
    assert (type(error), error.unknown, str(error)) == (Busy, True, "second (h)")


def test_a_receipt_after_a_failure_counts() -> None:
    one = outgoing(1)
    one[0].fail(Unavailable(""))
    settle(one, "a", Appended("disk", (Placed(0, 1, 0),)))
    assert [receipt.offset for receipt in receipts(one)] == [1]


def test_a_partial_failure_says_which_and_why() -> None:
    many = outgoing(3)
    settle(many, "a", Appended("disk", (Placed(0, 0, 0),) * 3, (Refused(1, Busy.code, "full"),)))
    with pytest.raises(
        SendManyError, match=r"1 of 3 messages have no receipt \(0 may be stored\); first: full"
    ) as caught:
        receipts(many)
    assert set(caught.value.failures) == {1}
    assert [receipt is None for receipt in caught.value.receipts] == [False, True, False]


def test_ids_differ_between_producers_and_messages() -> None:
    first, second = UniqueIds(1), UniqueIds(2)
    assert len({first.next(), first.next(), second.next(), second.next()}) == 4


def text(value: Any) -> str:
    """A value of a wrong type, as a program without types gives it."""
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": 7}, "key must be str or bytes, not int"),
        ({"key": ["a"]}, "key must be str or bytes, not list"),
        ({"tag": ["a"]}, "tag must be str, not list"),
        ({"mqtt_topic": b"a/b"}, "mqtt_topic must be str, not bytes"),
        ({"properties": {"a": 1}}, "property 'a' must be str, not int"),
        ({"properties": {"a": ["b"]}}, "property 'a' must be str, not list"),
        ({"properties": {1: "a"}}, "a property's name must be str, not int"),
        ({"properties": 5}, "properties must be a mapping, not int"),
        ({"body": 5}, "body must be bytes, not int"),
        ({"body": "text"}, "body must be bytes, not str"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_and_nothing_is_made_of_it(given: dict[str, Any], said: str) -> None:
    fields = {"body": b"x", "key": "", "tag": "", "properties": None, "mqtt_topic": ""} | given
    with pytest.raises(InvalidMessage) as caught:
        prepare(as_message("t", **fields), "i", TopicMap(), 0)
    assert caught.value.message == said


def test_what_is_neither_a_message_nor_a_topic_is_refused() -> None:
    for other in (b"orders", 5, None):
        with pytest.raises(InvalidMessage, match="topic must be str, not "):
            prepare(as_message(text(other), b"x", "", "", None, ""), "i", TopicMap(), 0)
    with pytest.raises(InvalidMessage, match="a message must be a Message, not tuple"):
        prepare(("orders", b"x"), "i", TopicMap(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [(b"y", "", "", None, ""), (b"", "k", "", None, ""), (b"", "", "t", None, ""), (b"", "", "", {"a": "b"}, "")],
)
def test_a_message_is_given_alone(more: tuple[bytes, str, str, dict[str, str] | None, str]) -> None:
    with pytest.raises(InvalidRequest, match="a Message has its body"):
        as_message(Message("t", b"x"), *more)
    assert as_message(Message("t", b"x"), b"", "", "", None, "") == Message("t", b"x")
