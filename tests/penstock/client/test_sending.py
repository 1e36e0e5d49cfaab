"""Where messages go, how they are batched and what they end with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.sending import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    Outgoing,
    Preparation,
    Receipt,
    append_of,
    as_message,
    batches,
    check_makeable,
    choose,
    final_error,
    maker_of,
    nobody_has,
    once_more,
    receipts,
    settle,
    settled,
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
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import Appended, Placed, PlacedRun, Refused
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.runs import decode_runs, record_of
from topicmap.queues import TopicMap, encode_level

BROKERS = [BrokerRoute("a", "10.0.0.1:1", 4), BrokerRoute("b", "10.0.0.2:1", 4)]


def prepared(*messages: Message, random_bits: int = 1) -> list[Outgoing]:
    return Preparation(random_bits, TopicMap()).runs(messages, 77)


def prepare(message: Message) -> Outgoing:
    [one] = prepared(message)
    return one


def outgoing(count: int = 3, size: int = 10) -> list[Outgoing]:
    """Messages on their way, each by itself."""
    return prepared(*[Message("t", bytes(size), tag=f"tag-{at}") for at in range(count)])


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


def test_neighbours_of_single_sends_are_one_run_on_the_wire() -> None:
    preparation = Preparation(7, TopicMap())
    many = [one for at in range(300) for one in preparation.runs([Message("t", b"%03d" % at)], 5)]
    many += preparation.runs([Message("t", b"later")], 5) + preparation.runs([Message("t", b"%03d" % 1)], 6)
    [run, longer, later] = decode_runs(bytes(append_of(many).body))
    assert run.bodies == [b"%03d" % at for at in range(300)]
    ids = [record_of(run.of([run.bodies[at]], at)) for at in (0, 255, 299)]
    assert ids == [record_of(many[at].run)[:12] + record_of(run.of([run.bodies[at]], at))[12:] for at in (0, 255, 299)]
    assert [one.run.bodies for one in many[:2]] == [[b"000"], [b"001"]], "they can be sent again by themselves"
    assert (longer.bodies, later.born_ms) == ([b"later"], 6)


def test_a_message_of_a_run_that_is_sent_again_has_the_id_that_it_had() -> None:
    [one] = prepared(*[Message("t", b"%d" % at) for at in range(5)])
    before = [message_of(one, at).id for at in range(5)]
    settle([one], "a", Appended("disk", (), (Refused(3, Busy.code, "full"),), (row(0, 0), row(4, 3))))
    parts = settled([one])
    assert [part.at for part in once_more(parts)] == [3]
    assert [message_of(part).id for part in parts] == before
    assert [part.offset for part in parts] == [0, 1, 2, -1, 3]


def row(at: int, offset: int, queue_id: int = 0) -> PlacedRun:
    return PlacedRun(at, queue_id, offset, 0)


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


def test_a_key_of_bytes_stays_with_the_broker_of_the_same_text() -> None:
    for key in map(str, range(50)):
        assert choose(key.encode(), BROKERS, 0) == choose(key, BROKERS, 0)
    assert {choose(bytes([255, n]), BROKERS, 0).broker for n in range(50)} == {"a", "b"}


def test_what_is_too_large_is_refused_at_once() -> None:
    with pytest.raises(TooLarge):
        prepare(Message("t", bytes(5_000_000)))


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
    assert all(sum(one.run.size for one in batch) <= BATCH_BYTES_MAX for batch in cut)
    assert len(cut) == 4


def test_a_message_longer_than_a_batch_goes_alone_and_nothing_gives_no_batch() -> None:
    assert [len(batch) for batch in batches(outgoing(2, 2_000_000))] == [1, 1]
    assert list(batches([])) == []


def test_a_run_is_never_longer_than_a_batch() -> None:
    made = prepared(*[Message("t", bytes(300_000))] * 10)
    assert [one.count for one in made] == [3, 3, 3, 1]
    assert [one.count for one in prepared(*[Message("t", b"")] * 5000)] == [BATCH_COUNT_MAX, 5000 - BATCH_COUNT_MAX]


def test_each_message_gets_its_place_or_its_refusal() -> None:
    many = outgoing(3)
    settle(many, "a", Appended("disk", (), (Refused(1, InvalidTopic.code, "no"),), (row(0, 5, 1), row(2, 9, 2))))
    assert many[0].receipt(0) == Receipt(message_of(many[0]).id, MessageQueue("a", "t", 1), 5, "disk")
    assert isinstance(many[1].error, InvalidTopic)
    assert (many[2].queue, many[2].offset) == (MessageQueue("a", "t", 2), 9)


@pytest.mark.parametrize("answer", [Done(), Appended("disk"), Appended("disk", (Placed(0, 0, 0),))])
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
    settle(one, "a", Appended("disk", (), (), (row(0, 1),)))
    assert [receipt.offset for receipt in receipts(one)] == [1]


def test_a_partial_failure_says_which_and_why() -> None:
    many = outgoing(3)
    settle(many, "a", Appended("disk", (), (Refused(1, Busy.code, "full"),), (row(0, 0), row(2, 1))))
    with pytest.raises(
        SendManyError, match=r"1 of 3 messages have no receipt \(0 may be stored\); first: full"
    ) as caught:
        receipts(many)
    assert set(caught.value.failures) == {1}
    assert [receipt is None for receipt in caught.value.receipts] == [False, True, False]


def test_receipts_are_a_sequence_that_makes_each_when_it_is_looked_at() -> None:
    made = prepared(*[Message("t", b"%d" % at) for at in range(3)], Message("t", b"other"))
    settle(made, "a", Appended("disk", (), (), (row(0, 7), row(3, 4, 2))))
    found = receipts(made)
    assert (len(found), [one.offset for one in found]) == (4, [7, 8, 9, 4])
    assert [found[at].offset for at in (0, 2, 3, -1, -4)] == [7, 9, 4, 4, 7]
    assert found[1:3] == [found[1], found[2]]
    assert [one.id for one in found] == [message_of(made[0], at).id for at in range(3)] + [message_of(made[1]).id]
    assert found == list(found)
    assert found != list(found)[:2]
    assert repr(found) == repr(list(found))
    for at in (4, -5):
        with pytest.raises(IndexError):
            found[at]
    assert receipts([]) == []


def test_ids_differ_between_producers_and_messages() -> None:
    first, second = Preparation(1, TopicMap()), Preparation(2, TopicMap())
    made = [maker.runs([Message("t", b"x")], 1)[0] for maker in (first, first, second, second)]
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
        ({"body": 5}, "body must be bytes, not int"),
        ({"body": "text"}, "body must be bytes, not str"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_and_nothing_is_made_of_it(given: dict[str, Any], said: str) -> None:
    fields = {"body": b"x", "key": "", "tag": "", "properties": None, "mqtt_topic": ""} | given
    with pytest.raises(InvalidMessage) as caught:
        prepare(as_message("t", **fields))
    assert caught.value.message == said


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
