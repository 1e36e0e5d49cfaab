"""The requests of each way to store messages, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.messages.whole_records import records_of
from penstock.client import ways
from penstock.client.delays import Due
from penstock.client.preparation import Preparation
from penstock.client.sending import Outgoing, Receipt, batches, settled
from penstock.client.ways import AT_A_TIME, AT_ONCE, IN_A_WHILE, IN_QUEUE, RECORDS_MAX, DelayedReceipt, broker_of_chosen
from penstock.errors import (
    Busy,
    InternalError,
    InvalidMessage,
    InvalidRequest,
    InvalidTopic,
    NoRoute,
    SendManyError,
    TooLarge,
)
from penstock.protocol.message import Message, decode_message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Append, Appended, Placed, Refused
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import SetTimers, TimerSet, TimersSet
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap

BROKERS = [
    BrokerRoute("b", "10.0.0.2:1", 2),
    BrokerRoute("a", "10.0.0.1:1", 1),
    BrokerRoute("c", "10.0.0.3:1", 4, False),
]
MESSAGES = [Message("t", b"%d" % at) for at in range(3)]


def outgoing(*, queue: Any = None, due: Due | None = None, messages: list[Message] = MESSAGES) -> list[Outgoing]:
    made = runs_at_broker(Preparation(1, TopicMap()), messages, 77)
    ways.prepare(made, messages, ways.way_of(queue, due), queue, due)
    return settled(made)


@pytest.mark.parametrize(
    ("queue", "due", "way"),
    [
        (None, None, AT_ONCE),
        (MessageQueue("a", "t", 0), None, IN_QUEUE),
        (lambda queues, message: queues[0], None, IN_QUEUE),
        (None, Due(5, True), IN_A_WHILE),
        (None, Due(5, False), AT_A_TIME),
    ],
)
def test_what_is_asked_for_decides_the_way(queue: Any, due: Due | None, way: ways.Way) -> None:
    assert ways.way_of(queue, due) is way


@pytest.mark.parametrize(("queue", "due"), [(MessageQueue("a", "t", 0), Due(5, True)), ("t:0", None), (0, None)])
def test_a_queue_is_one_or_chooses_one_and_delayed_messages_have_none(queue: Any, due: Due | None) -> None:
    with pytest.raises(InvalidRequest, match="queue"):
        outgoing(queue=queue, due=due)


def test_delayed_messages_leave_as_records_with_their_due_times_and_get_their_timers() -> None:
    many = outgoing(due=Due(5000, True))
    request = IN_A_WHILE.request(many)
    assert isinstance(request, SetTimers)
    assert (request.due_ms, request.from_now) == ((5000,) * 3, True)
    assert [decode_message(one).body for one in records_of(request.body, len(many))] == [b"0", b"1", b"2"]
    answer = TimersSet((TimerSet(40, 9000), TimerSet(0, 0), TimerSet(41, 9001)), (Refused(1, Busy.code, "full"),))
    IN_A_WHILE.settle(many, "a", answer)
    assert IN_A_WHILE.again(many) == [many[1]]
    with pytest.raises(SendManyError) as caught:
        ways.receipts(many, IN_A_WHILE)
    first, second, third = caught.value.receipts
    assert first == DelayedReceipt(many[0].id_of(0), "a", 40, 9000, "t")
    assert (second, third.name) == (None, "41@9001")  # type: ignore[union-attr]
    assert isinstance(caught.value.failures[1], Busy)


@pytest.mark.parametrize("way", [IN_QUEUE, IN_A_WHILE, AT_A_TIME])
@pytest.mark.parametrize("answer", [Done(), TimersSet((TimerSet(1, 2),)), Appended("disk", (Placed(0, 0, 0),))])
def test_an_answer_that_does_not_fit_leaves_the_outcome_unknown(way: ways.Way, answer: Any) -> None:
    many = outgoing(due=Due(1, True))
    way.settle(many, "a", answer)
    assert [(type(one.error), one.unknown) for one in many] == [(InternalError, True)] * 3


def test_messages_of_chosen_queues_leave_as_records_and_get_their_places() -> None:
    many = outgoing(queue=MessageQueue("b", "t", 1))
    assert [broker_of_chosen(one, BROKERS).address for one in many] == ["10.0.0.2:1"] * 3
    request = IN_QUEUE.request(many)
    assert isinstance(request, Append)
    assert [decode_message(one).queue.number for one in records_of(request.body, request.count)] == [1, 1, 1]
    placed = (Placed(1, 7, 0), Placed(0, 0, 0), Placed(1, 8, 0))
    IN_QUEUE.settle(many, "b", Appended("disk", placed, (Refused(1, InvalidTopic.code, "no"),)))
    assert [one.receipt(0).offset for one in many if one.queue is not None] == [7, 8]
    assert many[0].receipt(0) == Receipt(many[0].id_of(0), MessageQueue("b", "t", 1), 7, "disk")
    assert isinstance(many[1].error, InvalidTopic)


def test_a_selector_sees_all_queues_that_take_messages_and_chooses_once() -> None:
    seen: list[tuple[list[str], bytes]] = []

    def select(queues: Any, message: Message) -> MessageQueue:
        seen.append(([str(queue) for queue in queues], message.body))
        return queues[int(message.body) % len(queues)]  # type: ignore[no-any-return]

    many = outgoing(queue=select)
    for _ in range(2):
        assert [broker_of_chosen(one, BROKERS).broker for one in many] == ["a", "b", "b"]
    assert [one.run.queue_id for one in many] == [0, 0, 1]
    assert seen == [(["t:0@a", "t:0@b", "t:1@b"], b"%d" % at) for at in range(3)]


def wrong(queues: Any, message: Message) -> MessageQueue:
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("queue", "error", "said"),
    [
        (MessageQueue("c", "t", 0), NoRoute, "c takes no messages"),
        (MessageQueue("d", "t", 0), NoRoute, "d takes no messages"),
        (MessageQueue("a", "other", 0), InvalidRequest, "is no queue of topic t"),
        (lambda queues, message: MessageQueue("a", "t", 9), InvalidRequest, "none of the 3 queues"),
        (lambda queues, message: None, InvalidRequest, "none of the 3 queues"),
        (wrong, InvalidRequest, "the selector of queues raised KeyError"),
    ],
)
def test_a_queue_that_cannot_be_had_is_named(queue: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        broker_of_chosen(outgoing(queue=queue)[0], BROKERS)


def test_without_a_broker_that_takes_messages_nothing_is_chosen() -> None:
    chooses: Callable[..., MessageQueue] = lambda queues, message: queues[0]  # noqa: E731
    with pytest.raises(NoRoute, match="takes messages for this topic now"):
        broker_of_chosen(outgoing(queue=chooses)[0], BROKERS[2:])


def test_requests_of_records_have_a_bounded_number() -> None:
    many = outgoing(due=Due(1, True), messages=[Message("t", b"x")] * (RECORDS_MAX + 1))
    assert [len(batch) for batch in batches(many, IN_A_WHILE.fits)] == [RECORDS_MAX, 1]


def test_a_broker_is_found_by_its_name() -> None:
    assert ways.address_of("b", BROKERS) == "10.0.0.2:1"
    with pytest.raises(NoRoute, match="z is away"):
        ways.address_of("z", BROKERS)


@pytest.mark.interpreted
@given(st.lists(st.sampled_from(["good", "other", "large", "bad topic", "bad key", "none"]), max_size=12))
def test_illegal_messages_have_errors_of_their_own_and_the_others_are_as_they_were(kinds: list[str]) -> None:
    made: dict[str, Any] = {
        "good": Message("t", b"x"),
        "other": Message("t", b"x", key="k"),
        "large": Message("t", bytes(5_000_000)),
        "bad topic": Message("a/b", b"x"),
        "bad key": Message("t", b"x", key=7),  # type: ignore[arg-type]
        "none": None,
    }
    preparation = Preparation(1, TopicMap())
    found = ways.runs_of_each(preparation, [made[kind] for kind in kinds], 77)
    assert [one.at for one in found] == [sum([one.count for one in found[:at]]) for at in range(len(found))]
    told = [one for one in found for _ in range(one.count)]
    errors = {"large": TooLarge, "bad topic": InvalidTopic, "bad key": InvalidMessage, "none": InvalidMessage}
    assert [type(one.error) for one in told] == [errors.get(kind, type(None)) for kind in kinds]
    assert [one.key for one in told if one.error is None] == [
        "k" * (kind == "other") for kind in kinds if kind in ("good", "other")
    ]
    for one in found:
        one.broker = BROKERS[0]
        preparation.number(one)
    ids = [one.id_of(number) for one in found if one.error is None for number in range(one.count)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("queue", [5, "a", *(MessageQueue("b", "a", number) for number in (-1, 2**31, "0", True))])  # type: ignore[arg-type]
def test_what_is_no_queue_is_not_sent(queue: Any) -> None:
    with pytest.raises(InvalidRequest, match="queue is a MessageQueue or a function"):
        ways.way_of(queue, None)


@pytest.mark.parametrize("given", [None, 5, Message("a", b""), {"a": 1}])
def test_what_is_no_list_of_messages_is_told(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="messages are a list of Message, not"):
        ways.runs_of_each(Preparation(1, TopicMap()), given, 0)


def test_messages_may_come_one_by_one() -> None:
    made = ways.runs_of_each(Preparation(1, TopicMap()), (Message(topic, b"") for topic in ("a", "a/b", "a")), 0)  # type: ignore[arg-type]
    assert [(one.at, type(one.error)) for one in made] == [(0, type(None)), (1, InvalidTopic), (2, type(None))]


@pytest.mark.parametrize("given", [None, 5, Receipt("id", MessageQueue("b", "a", 0), 0, "disk")])
def test_only_a_delayed_message_can_be_taken_back(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="cancel takes a DelayedReceipt, not"):
        ways.cancel_of(given)
