from __future__ import annotations

from typing import Any

import pytest

from penstock.client.preparation import Preparation
from penstock.client.sending import Outgoing, append_of
from penstock.errors import InvalidMessage, MessageForgotten, OutcomeStands
from penstock.protocol.message import FLAG_SEQUENCED, Message
from penstock.protocol.requests.transactions import BeginHalf, BeginHalves, HalfBegun, HalfPart, HalvesBegun
from penstock.protocol.runs import record_of
from tests.broker.broker_rig import Rig
from tests.broker.transactions.test_requests import end, halves, rig_with_topic
from tests.penstock.client.at_broker import runs_at_broker
from topicmap.queues import TopicMap


def producer() -> Preparation:
    return Preparation(7, TopicMap())


def prepared(one: Preparation, *bodies: bytes) -> list[Outgoing]:
    """Messages of a producer with their numbers, each a run of its own."""
    return runs_at_broker(one, [Message("t", body, key=f"k{at}") for at, body in enumerate(bodies)], 5)


def begin(rig: Rig, messages: list[Outgoing], group: str = "g") -> Any:
    """Begins a half of these; the answer."""
    runs = append_of(messages)
    return rig.ask(BeginHalf(group, runs.count, runs.checksum, runs.body))


def restarted(rig: Rig, *, power: bool) -> Rig:
    if power:
        rig.disk.lose_power()
    return rig.restarted()


@pytest.mark.parametrize("power", [False, True])
def test_a_begin_that_is_repeated_is_the_half_that_it_was_also_after_a_restart(power: bool) -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1", b"2")
    first = begin(rig, messages)
    assert first.id > 0
    assert begin(rig, messages) == first
    rig = restarted(rig, power=power)
    assert begin(rig, messages) == first
    assert list(halves(rig)) == [first.id]
    assert end(rig, first.id, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [b"1", b"2"]


def test_a_begin_that_was_lost_with_the_power_is_a_new_half() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1")
    runs = append_of(messages)
    rig.submit(BeginHalf("g", runs.count, runs.checksum, runs.body))  # answered by nobody, and not synced
    rig = restarted(rig, power=True)
    assert begin(rig, messages).id > 0
    assert len(halves(rig)) == 1


def test_messages_that_were_sent_before_stay_in_their_half_and_the_others_make_a_new_one() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1", b"2", b"3", b"4")
    first = begin(rig, messages[1:3])
    mixed = begin(rig, messages)
    second = mixed.id
    assert mixed == HalfBegun(second, (), (HalfPart(0, second), HalfPart(1, first.id), HalfPart(3, second)))
    assert begin(rig, messages) == mixed
    assert {id: row.messages for id, row in halves(rig).items()} == {first.id: 2, second: 2}
    for id in (first.id, second):
        assert end(rig, id, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [b"2", b"3", b"1", b"4"]


def test_a_transaction_that_has_an_outcome_does_not_begin_again() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1")
    end(rig, begin(rig, messages).id, "rollback")
    assert isinstance(begin(rig, messages), OutcomeStands)
    assert isinstance(begin(rig.restarted(), messages), OutcomeStands)
    assert halves(rig) == {}


def test_a_half_is_its_groups() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1")
    begin(rig, messages)
    assert isinstance(begin(rig, messages, "other"), InvalidMessage)


def test_numbers_behind_the_window_are_known_as_long_as_the_half_is_there() -> None:
    rig, one = rig_with_topic(segment_bytes=1 << 20), producer()
    known, ended, unsent = prepared(one, b"known"), prepared(one, b"ended"), prepared(one, b"unsent")
    half = begin(rig, known)
    end(rig, begin(rig, ended).id, "rollback")
    for _ in range(2):
        runs = append_of(runs_at_broker(one, [Message("t", b"x")] * 4096, 5))
        rig.ask(runs)
    assert begin(rig, known) == half
    assert isinstance(begin(rig, ended), MessageForgotten)
    assert isinstance(begin(rig, unsent), MessageForgotten)
    unsent[0].run.flag &= ~FLAG_SEQUENCED  # what a producer does that knows that none of its attempts has stored it
    assert begin(rig, unsent).id > 0


def test_one_request_has_a_message_once_and_a_run_is_stored_whole_or_not() -> None:
    rig, one = rig_with_topic(), producer()
    [message] = prepared(one, b"1")
    assert isinstance(begin(rig, [message, message]), InvalidMessage)
    [first, second] = runs_at_broker(one, [Message("t", b"x"), Message("t", b"yy")], 5)
    begin(rig, [first])
    second.run.tail, second.run.bodies = first.run.tail, [b"x", b"y"]
    assert isinstance(begin(rig, [second]), InvalidMessage)


def test_a_run_of_one_message_that_does_not_say_that_its_id_counts_has_a_number_all_the_same() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1")
    messages[0].run.counts = False
    first = begin(rig, messages)
    assert begin(rig, messages) == first
    assert end(rig, first.id, "commit") == ("commit", None)
    assert rig.bodies("t:0") == [b"1"]


def test_halves_of_whole_records_are_known_too() -> None:
    rig, messages = rig_with_topic(), prepared(producer(), b"1", b"2")
    body = b"".join([record_of(one.run) for one in messages])
    first = rig.ask(BeginHalves("g", 2, body))
    assert isinstance(first, HalvesBegun)
    assert rig.ask(BeginHalves("g", 2, body)) == first
    assert rig.restarted().ask(BeginHalves("g", 2, body)) == first
