"""Where messages go, how they are batched and what they end with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.client.preparation import Preparation
from penstock.client.sending import (
    BATCH_BYTES_MAX,
    WINDOW_BYTES,
    Outgoing,
    Receipt,
    append_of,
    batches,
    broker_for,
    check_makeable,
    choose,
    final_error,
    maker_of,
    nobody_has,
    once_more,
    receipts,
    settle,
    settled,
    windows,
)
from penstock.errors import (
    Busy,
    InternalError,
    InvalidTopic,
    MessageForgotten,
    NoRoute,
    PenstockError,
    SendManyError,
    TimedOut,
    Unavailable,
)
from penstock.protocol.message import FLAG_SEQUENCED, Message, decode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import Appended, Placed, PlacedRun, Refused
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.runs import decode_runs, record_of
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap

BROKERS = [BrokerRoute("a", "10.0.0.1:1", 4), BrokerRoute("b", "10.0.0.2:1", 4)]


def prepared(*messages: Message, random_bits: int = 1) -> list[Outgoing]:
    return runs_at_broker(Preparation(random_bits, TopicMap()), messages, 77)


def prepare(message: Message) -> Outgoing:
    [one] = prepared(message)
    return one


def outgoing(count: int = 3, size: int = 10) -> list[Outgoing]:
    """Messages on their way, each by itself."""
    return prepared(*[Message("t", bytes(size), tag=f"tag-{at}") for at in range(count)])


def message_of(one: Outgoing, number: int = 0) -> ReceivedMessage:
    return decode_message(record_of(one.run.of([one.run.bodies[number]], number)))


def test_neighbours_of_single_sends_are_one_run_on_the_wire() -> None:
    preparation = Preparation(7, TopicMap())
    many = [one for at in range(300) for one in runs_at_broker(preparation, [Message("t", b"%03d" % at)], 5)]
    many += runs_at_broker(preparation, [Message("t", b"later")], 5)
    many += runs_at_broker(preparation, [Message("t", b"%03d" % 1)], 6)
    [run, longer, later] = decode_runs(bytes(append_of(many).body))
    assert run.bodies == [b"%03d" % at for at in range(300)]
    ids = [record_of(run.of([run.bodies[at]], at)) for at in (0, 255, 299)]
    assert ids == [record_of(many[at].run)[:12] + record_of(run.of([run.bodies[at]], at))[12:] for at in (0, 255, 299)]
    assert [one.run.bodies for one in many[:2]] == [[b"000"], [b"001"]], "they can be sent again by themselves"
    assert (longer.bodies, later.born_ms) == ([b"later"], 6)


def test_messages_that_have_their_numbers_from_several_brokers_are_no_run() -> None:
    preparation = Preparation(7, TopicMap())
    made = preparation.runs([Message("t", b"a")], 5) + preparation.runs([Message("t", b"b")], 5)
    made += preparation.runs([Message("t", b"c")], 5)
    for one, broker in zip(made, ["a", "b", "b"], strict=True):
        one.broker = BrokerRoute(broker, f"{broker}:1", 4)
        preparation.number(one)
    assert [one.run.number for one in made] == [1, 1, 2]
    sent = decode_runs(bytes(append_of([made[0], made[2], made[1]]).body))
    assert [run.bodies for run in sent] == [[b"a"], [b"c"], [b"b"]]
    assert [run.bodies for run in decode_runs(bytes(append_of(made).body))] == [[b"a"], [b"b", b"c"]]


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


def test_a_key_of_bytes_stays_with_the_broker_of_the_same_text() -> None:
    for key in map(str, range(50)):
        assert choose(key.encode(), BROKERS, 0) == choose(key, BROKERS, 0)
    assert {choose(bytes([255, n]), BROKERS, 0).broker for n in range(50)} == {"a", "b"}


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


def test_messages_under_way_at_once_have_a_bounded_size_and_keep_their_order() -> None:
    many = outgoing(9, WINDOW_BYTES // 4 - 1000)
    cut = list(windows(many))
    assert [len(window) for window in cut] == [4, 4, 1]
    assert [one for window in cut for one in window] == many
    assert list(windows(many[:2])) == [many[:2]]
    assert list(windows([])) == []


def lost(one: Outgoing, broker: BrokerRoute, error: PenstockError | None = None) -> Outgoing:
    """A message whose connection to a broker was lost, so that the broker may have it."""
    one.broker = broker
    error = error or Unavailable("gone")
    error.unknown = True
    one.fail(error)
    return one


def test_a_message_that_a_broker_may_have_goes_there_once_more_before_it_goes_elsewhere() -> None:
    one = lost(prepare(Message("t", b"x")), BROKERS[1])
    assert [broker_for(one, BROKERS, 0, {BROKERS[1].address}, True).broker for _ in range(2)] == ["b", "a"]


def test_a_message_that_a_broker_does_not_answer_goes_elsewhere() -> None:
    one = lost(prepare(Message("t", b"x")), BROKERS[1], TimedOut("late"))
    assert broker_for(one, BROKERS, 0, {BROKERS[1].address}, True).broker == "a"


def test_a_message_that_may_not_leave_waits_for_the_broker_that_may_have_it() -> None:
    one = lost(prepare(Message("t", b"x")), BROKERS[1], TimedOut("late"))
    assert [broker_for(one, BROKERS, 0, {BROKERS[1].address}, False).broker for _ in range(3)] == ["b"] * 3
    with pytest.raises(NoRoute, match="no live broker b"):
        broker_for(one, BROKERS[:1], 0, (), False)


def test_a_message_that_no_broker_can_have_is_free() -> None:
    one = prepare(Message("t", b"x"))
    one.broker = BROKERS[1]
    one.fail(Busy("full"))
    assert broker_for(one, BROKERS, 0, (), False).broker == "a"


def test_without_idempotence_no_broker_knows_a_message() -> None:
    [one] = runs_at_broker(Preparation(1, TopicMap(), is_idempotent=False), [Message("t", b"x")], 1)
    assert not one.run.flag & FLAG_SEQUENCED
    assert broker_for(lost(one, BROKERS[1]), BROKERS, 0, (), False).broker == "a"


def test_what_a_broker_has_forgotten_is_sent_as_new_if_it_surely_is() -> None:
    forgotten = Appended("disk", (), (Refused(0, MessageForgotten.code, "long ago"),), ())
    fresh, maybe = prepare(Message("t", b"x")), lost(prepare(Message("t", b"x")), BROKERS[0])
    for one in (fresh, maybe):
        settle([one], "a", forgotten)
    assert once_more([fresh, maybe]) == [fresh]
    assert not fresh.run.flag & FLAG_SEQUENCED
    assert final_error(maybe).unknown


def test_a_receipt_says_that_it_is_not_known_where_a_message_is() -> None:
    many = prepared(*[Message("t", b"x")] * 3)
    settle(many, "a", Appended("disk", (), (), (PlacedRun(0, 0xFFFFFFFF, -1, -1), PlacedRun(2, 1, 7, 70))))
    assert [(one.queue.number, one.offset) for one in receipts(settled(many))] == [(-1, -1), (-1, -1), (1, 7)]


def test_each_broker_has_numbers_of_its_own_without_a_gap() -> None:
    preparation, tails = Preparation(7, TopicMap()), dict[str, list[bytes]]()
    for at in range(6):
        [one] = preparation.runs([Message("t", b"x")], 1)
        one.broker = BROKERS[at % 3 // 2]
        preparation.number(one)
        tails.setdefault(one.broker.broker, []).append(one.run.tail[-29:])
    assert tails["a"] == [b"0000000000000007-%012x" % number for number in (1, 2, 3, 4)]
    assert tails["b"] == [b"0000000000000008-%012x" % number for number in (1, 2)]
