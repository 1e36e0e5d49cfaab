from __future__ import annotations

import random

import pytest

from penstock.client.replies import Waiting, named, opened_at, reply_of
from penstock.errors import Busy, InvalidRequest
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import OpenedFilter, OpenedFilters, RefusedFilter


def received(message: Message) -> ReceivedMessage:
    return decode_message(encode_message(Message("t", message.body, mqtt_topic="t/x", correlation=message.correlation)))


def test_the_first_reply_to_a_request_counts_and_what_nobody_waits_for_is_passed_over() -> None:
    waiting: Waiting[str] = Waiting(random.Random(1))
    first, second = waiting.begin("first"), waiting.begin("second")
    assert first != second
    assert waiting.take(received(Message(body=b"2", correlation=second))) == "second"
    assert waiting.take(received(Message(body=b"3", correlation=second))) is None
    assert waiting.take(received(Message(body=b"?", correlation=b"other"))) is None
    assert waiting.take(received(Message(body=b"?"))) is None
    assert [waiting.is_answered(one) for one in (first, second)] == [False, True]
    reply = waiting.end(second)
    assert reply is not None
    assert reply.body == b"2"
    assert waiting.end(first) is None
    assert waiting.take(received(Message(body=b"late", correlation=first))) is None


def test_a_request_says_where_its_reply_is_wanted_and_the_program_may_not() -> None:
    asked = Message("t", b"x", "k", "tag", {"a": "b"}, "t/1", 0)
    sent = Waiting.message(asked, "$reply/1", b"c")
    assert (sent.reply_to, sent.correlation) == ("$reply/1", b"c")
    kept = [(one.topic, one.body, one.key, one.tag, one.properties, one.mqtt_topic, one.qos) for one in (asked, sent)]
    assert kept[0] == kept[1]
    with pytest.raises(InvalidRequest, match="are the producer's"):
        Waiting.message(sent, "$reply/1", b"c")


def test_a_reply_goes_where_it_is_wanted() -> None:
    asked = decode_message(encode_message(Message("t", b"x", reply_to="$reply/1", correlation=b"\x00c")))
    answer = reply_of(asked, b"y")
    assert (answer.topic, answer.mqtt_topic, answer.body, answer.correlation) == ("", "$reply/1", b"y", b"\x00c")
    with pytest.raises(InvalidRequest, match="reply takes a received message, not None"):
        reply_of(None, b"y")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="wants no reply"):
        reply_of(decode_message(encode_message(Message("t", b"x"))), b"y")


def test_names_differ_and_nobody_guesses_them() -> None:
    first, second = named(random.Random(1)), named(random.Random(2))
    assert first[0] != second[0]
    assert len(first[0]) == len("$reply/") + 16


def test_a_broker_without_room_says_so() -> None:
    refused = OpenedFilters((), (RefusedFilter("$reply/1", Busy.code, "full"),))
    with pytest.raises(Busy):
        opened_at(refused)
    assert opened_at(OpenedFilters((OpenedFilter("$reply/1", "q", 7, 9),), (), "log")) == ("q", 7, "log")
