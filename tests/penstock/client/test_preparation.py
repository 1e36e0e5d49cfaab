"""Runs made of messages, and what is said of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.preparation import KNOWN_MAX, Preparation, as_message
from penstock.client.sending import BATCH_COUNT_MAX, Outgoing
from penstock.errors import InvalidMessage, InvalidProperty, InvalidRequest, InvalidTopic, ReservedName, TooLarge
from penstock.protocol.message import PROPERTIES_BYTES_MAX, Message, decode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.runs import record_of
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap, encode_level


def prepared(*messages: Message, random_bits: int = 1) -> list[Outgoing]:
    return runs_at_broker(Preparation(random_bits, TopicMap()), messages, 77)


def prepare(message: Message) -> Outgoing:
    [one] = prepared(message)
    return one


def message_of(one: Outgoing, number: int = 0) -> ReceivedMessage:
    return decode_message(record_of(one.run.of([one.run.bodies[number]], number)))


def test_a_message_gets_its_id_and_birth_time() -> None:
    one = prepare(Message("t", b"x", key="k"))
    message = message_of(one)
    assert (message.born_ms, message.topic, message.key) == (77, "t", "k")
    assert (one.topic, one.key, message.id) == ("t", "k", "0000000000000001-000000000001")
    assert message_of(prepare(Message("t", b"x", born_ms=5))).born_ms == 5


def test_an_id_that_the_caller_gave_stays() -> None:
    [one, other] = prepared(*[Message("t", b"x", id="mine-000000000001", properties={"a": "b"})] * 2)
    assert [message_of(each).id for each in (one, other)] == ["mine-000000000001"] * 2
    one.stored(MessageQueue("a", "t", 1), 5, "disk")
    assert one.receipt(0).id == "mine-000000000001"


def test_neighbours_that_differ_in_their_bodies_alone_are_one_run_whose_ids_count() -> None:
    first, second = Message("t", b"x", key="k"), Message("t", b"y", key="k", properties={"a": "b"})
    made = prepared(first, replace(first, body=b"z"), second, replace(second, body=b"long"), first, first)
    assert [(one.at, one.run.bodies) for one in made] == [
        (0, [b"x", b"z"]),
        (2, [b"y"]),
        (3, [b"long"]),
        (4, [b"x", b"x"]),
    ]
    found = [message_of(one, number) for one in made for number in range(one.count)]
    assert len({message.id for message in found}) == 6
    assert [dict(message.properties) for message in found] == [{}, {}, {"a": "b"}, {"a": "b"}, {}, {}]
    assert [message.key for message in found] == ["k"] * 6


@given(
    st.lists(st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["", "k", b"k"]), st.integers(0, 2)), max_size=30)
)
def test_messages_come_out_of_their_runs_as_they_were_in_order(fields: list[tuple[str, Any, int]]) -> None:
    messages = [Message(topic, bytes(size), key, tag="x") for topic, key, size in fields]
    made = prepared(*messages)
    found = [message_of(one, number) for one in made for number in range(one.count)]
    assert [(one.topic, one.body, one.key or "", one.tag) for one in found] == [
        (topic, bytes(size), key.decode() if isinstance(key, bytes) else key, "x") for topic, key, size in fields
    ]
    assert len({one.id for one in found}) == len(messages)
    assert [one.at for one in made] == [sum(one.count for one in made[:at]) for at in range(len(made))]
    assert all(one.run.size == sum(len(record_of(one.run)) for _ in one.run.bodies) for one in made)


def test_more_keys_than_are_remembered_stay_what_they_are() -> None:
    preparation, keys = Preparation(1, TopicMap()), [f"key-{number}" for number in range(KNOWN_MAX + 10)]
    for _ in range(2):
        messages = [Message("t", b"x", key, mqtt_topic="t/a", tag="y") for key in keys]
        found = [message_of(one) for one in runs_at_broker(preparation, messages, 77)]
        assert [message.key for message in found] == keys
        assert {(message.name, message.tag) for message in found} == {("t/a", "y")}


def test_a_mapping_that_changes_between_messages_counts_as_it_is_then() -> None:
    properties = {"a": "1"}
    message, preparation = Message("t", b"x", properties=properties), Preparation(1, TopicMap())
    first = message_of(runs_at_broker(preparation, [message], 77)[0])
    properties["a"] = "2"
    second = message_of(runs_at_broker(preparation, [message], 77)[0])
    assert [one.properties["a"] for one in (first, second)] == ["1", "2"]


@pytest.mark.parametrize(("key", "error"), [("k" * PROPERTIES_BYTES_MAX, TooLarge), ("\ud800", InvalidMessage)])
def test_a_key_that_no_record_holds_is_refused(key: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        prepare(Message("t", b"x", key))


def test_an_mqtt_name_without_a_topic_is_placed_by_the_topic_map() -> None:
    one = prepare(Message(mqtt_topic="plant/a/temp", body=b"x"))
    assert (one.topic, one.key) == TopicMap().place("plant/a/temp")
    assert message_of(one).mqtt_topic == "plant/a/temp"
    assert prepare(Message("own", b"", mqtt_topic="plant/a")).topic == "own"


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
    one = prepare(Message(name, b"x"))
    message = message_of(one)
    assert one.topic == message.topic == topic
    assert message.name == name
    other = message_of(prepare(Message(name, b"x", mqtt_topic="own/name")))
    assert (other.topic, other.name) == (topic, "own/name")


@pytest.mark.parametrize("name", ["a/b", "a+", "#", "a\n", "\ud800", "x" * 65_536])
def test_a_name_that_is_no_first_level_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidTopic, match="one level of an MQTT name"):
        prepare(Message(name, b"x"))


def test_what_is_too_large_is_refused_at_once() -> None:
    with pytest.raises(TooLarge):
        prepare(Message("t", bytes(5_000_000)))


def test_a_run_is_never_longer_than_a_batch() -> None:
    made = prepared(*[Message("t", bytes(300_000))] * 10)
    assert [one.count for one in made] == [3, 3, 3, 1]
    assert [one.count for one in prepared(*[Message("t", b"")] * 5000)] == [BATCH_COUNT_MAX, 5000 - BATCH_COUNT_MAX]


def test_ids_differ_between_producers_and_messages() -> None:
    first, second = Preparation(1, TopicMap()), Preparation(2, TopicMap())
    made = [runs_at_broker(maker, [Message("t", b"x")], 1)[0] for maker in (first, first, second, second)]
    assert len({message_of(one).id for one in made}) == 4


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
        ({"properties": 5, "shard": "s"}, "properties must be a mapping, not int"),
        ({"properties": {"": "x"}}, "a property's name is empty"),
        ({"shard": []}, "shard must be str, not list"),
        ({"retain": "x"}, "retain must be bool, not str"),
        ({"retain": []}, "retain must be bool, not list"),
        ({"tag": "*"}, "a tag is a word, not *"),
        ({"body": 5}, "body must be bytes, not int"),
        ({"body": "text"}, "body must be bytes, not str"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_and_nothing_is_made_of_it(given: dict[str, Any], said: str) -> None:
    fields = {"body": b"x", "key": "", "tag": "", "properties": None, "mqtt_topic": ""} | given
    with pytest.raises(InvalidMessage) as caught:
        prepare(as_message("t", **fields))
    assert caught.value.message == said


@pytest.mark.interpreted
def test_what_is_neither_a_message_nor_a_topic_is_refused() -> None:
    for other in (b"orders", 5, None):
        with pytest.raises(InvalidMessage, match="topic must be str, not "):
            prepare(as_message(text(other), b"x", "", "", None, ""))
    with pytest.raises(InvalidMessage, match="a message must be a Message, not tuple"):
        prepare(("orders", b"x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [(b"y", "", "", None, ""), (b"", "k", "", None, ""), (b"", "", "t", None, ""), (b"", "", "", {"a": "b"}, "")],
)
def test_a_message_is_given_alone(more: tuple[bytes, str, str, dict[str, str] | None, str]) -> None:
    with pytest.raises(InvalidRequest, match="a Message has its body"):
        as_message(Message("t", b"x"), *more)
    assert as_message(Message("t", b"x"), b"", "", "", None, "") == Message("t", b"x")


def test_a_shard_chooses_the_broker_in_place_of_the_key_and_is_a_property() -> None:
    one = prepare(as_message("t", b"x", key="k", shard="s", properties={"a": "b"}))
    assert one.key == "s"
    message = message_of(one)
    assert (message.key, dict(message.properties)) == ("k", {"a": "b", "__SHARDINGKEY": "s"})
    assert prepare(as_message("t", b"x", key="k")).key == "k"
    with pytest.raises(InvalidRequest, match="in itself"):
        as_message(Message("t", b"x"), b"", shard="s")


@pytest.mark.parametrize(
    ("topic", "mqtt_topic"),
    [
        ("%RETRY%g", ""),
        ("%DLQ%g", ""),
        ("%sys%timers", ""),
        ("mqtt|sessions", ""),
        ("$SYS", ""),
        ("%24SYS", ""),
        ("", "$SYS/x"),
        ("orders", "$SYS/x"),
        ("orders", "$events/client/connected"),
        ("$events", ""),
        ("$reply", ""),
        ("%24reply", ""),
    ],
)
def test_a_reserved_name_is_refused_as_such(topic: str, mqtt_topic: str) -> None:
    with pytest.raises(ReservedName):
        prepare(Message(topic, b"x", mqtt_topic=mqtt_topic))


def test_a_reply_has_a_name_under_the_reserved_level() -> None:
    assert prepare(Message(mqtt_topic="$reply/abc", body=b"x")).topic == "%24reply"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"KEYS": "x"}, "these property names are reserved: KEYS"),
        ({"a": "\x01"}, "property 'a' holds the separator"),
        ({"a": "\ud800"}, "properties are not valid Unicode"),
        ({"a": 1}, "property 'a' must be str, not int"),
        (5, "properties must be a mapping, not int"),
    ],
)
def test_each_rule_of_properties_has_its_words(properties: Any, said: str) -> None:
    with pytest.raises(InvalidProperty) as caught:
        prepare(Message("t", b"x", properties=properties))
    assert said in caught.value.message
    with pytest.raises(TooLarge, match="properties have at most 262144 bytes"):
        prepare(Message("t", b"x", properties={"a": "x" * 262_144}))
    assert message_of(prepare(Message("t", b""))).body == b"", "an empty body is legal"


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"))


@given(
    st.dictionaries(TEXTS.filter(bool), TEXTS, min_size=1, max_size=4),
    st.sampled_from(["", "key"]),
    st.sampled_from(["", "tag"]),
    st.booleans(),
)
def test_a_kind_that_comes_for_the_first_time_is_as_one_that_is_known(
    properties: dict[str, str], key: str, tag: str, retain: bool
) -> None:
    message = Message("t", b"x", key, tag, properties, retain=retain)
    preparation = Preparation(1, TopicMap())
    found = [message_of(runs_at_broker(preparation, [message], 77)[0]) for _ in range(3)]
    said = [(one.topic, one.mqtt_topic, one.key, one.tag, dict(one.properties), one.retain, one.qos) for one in found]
    assert said == [("t", "", key, tag, properties, retain, 1)] * 3
