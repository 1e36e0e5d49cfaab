"""What a program receives."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from penstock.errors import InvalidMessage
from penstock.protocol.compression import SYSTEM_FLAG_AT, compress, system_flag_of
from penstock.protocol.message import (
    ATTEMPTS_AT,
    OFFSETS,
    OFFSETS_AT,
    STORED,
    STORED_AT,
    Message,
    decode_message,
    encode_message,
    encode_record,
)
from penstock.protocol.received import MessageQueue, ReceivedMessage, queue_named
from topicmap.names import InvalidName

QUEUE = MessageQueue("broker-1", "orders", 3)


def received(message: Message) -> ReceivedMessage:
    return decode_message(encode_message(message), QUEUE)


def test_further_attempts_of_a_message_that_was_read_leave_its_body_as_it_is() -> None:
    flag, body = system_flag_of("zlib"), b"a" * 5_000
    record = bytearray(encode_message(Message("orders", compress(body, flag))))
    record[SYSTEM_FLAG_AT : SYSTEM_FLAG_AT + 4] = flag.to_bytes(4, "big")
    message = decode_message(bytes(record), QUEUE)
    assert message.body == body
    again = message.delivered(3)
    assert (again.body, again.attempts, message.attempts) == (body, 3, 0)


def test_a_queue_is_a_value_with_a_name_and_a_form_for_people() -> None:
    assert (QUEUE.name, str(QUEUE), f"{QUEUE}") == ("orders:3", "orders:3@broker-1", "orders:3@broker-1")
    assert queue_named("broker-1", "orders:3") == QUEUE
    assert {QUEUE: 1}[MessageQueue("broker-1", "orders", 3)] == 1
    assert sorted([QUEUE, MessageQueue("broker-0", "z", 9), MessageQueue("broker-1", "orders", 20)])[1] is QUEUE
    with pytest.raises(AttributeError):
        QUEUE.number = 4  # type: ignore[misc]


@pytest.mark.parametrize("name", ["orders", "orders:", "orders:x", "~filter:a", ":0"])
def test_what_names_no_queue_of_a_topic_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        queue_named("b", name)


def test_messages_of_a_pull_share_their_queue() -> None:
    assert received(Message("orders", b"a")).queue is received(Message("orders", b"b")).queue is QUEUE


def test_a_message_has_the_topic_of_its_queue_and_its_own_name() -> None:
    assert (received(Message("orders", b"")).topic, received(Message("orders", b"")).name) == ("orders", "orders")
    assert received(Message("orders", b"", mqtt_topic="orders/7")).name == "orders/7"


def test_a_message_that_was_given_back_has_the_topic_and_name_that_it_came_from() -> None:
    origin = {"p": "v", "ORIGIN_TOPIC": "orders", "ORIGIN_NAME": "orders/7", "ORIGIN_OFFSET": "3", "REASON": "no"}
    record = bytearray(encode_message(Message("orders", b"b", properties=origin)))
    record[ATTEMPTS_AT : ATTEMPTS_AT + 4] = (2).to_bytes(4, "big")
    retry = decode_message(bytes(record), MessageQueue("broker-1", "%RETRY%g", 0))
    assert (retry.topic, retry.name, retry.mqtt_topic, retry.attempts) == ("orders", "orders/7", "orders/7", 2)
    assert dict(retry.properties) == {"p": "v", "ORIGIN_OFFSET": "3", "REASON": "no"}
    letter = decode_message(bytes(record), MessageQueue("broker-1", "%DLQ%g", 0))
    assert (letter.topic, letter.name, letter.properties["ORIGIN_TOPIC"]) == ("%DLQ%g", "%DLQ%g", "orders")
    assert received(Message("orders", b"")).attempts == 0


@pytest.mark.parametrize("key", ["d7", "ü", b"\xff\x00", ""])
def test_a_key_is_text_where_it_can_be_and_always_bytes(key: str | bytes) -> None:
    message = received(Message("orders", b"", key=key))
    assert message.key == key
    assert message.key_bytes == (key.encode() if isinstance(key, str) else key)


def test_a_message_shows_where_it_is_and_not_its_body() -> None:
    text = repr(received(Message("orders", bytes(5000), key="d7")))
    assert text == "ReceivedMessage(orders:3@broker-1, offset 0, key 'd7', 5000 bytes)"


def test_a_message_may_go_to_another_process() -> None:
    sent = Message("orders", b"x", "k", "t", {"a": "b"}, "orders/1", 2, True, 5, "id-1")
    message = received(sent)
    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
        assert other == message
        assert shown(other) == shown(message)


def shown(message: ReceivedMessage) -> list[Any]:
    """All that a program sees of a message."""
    names = "queue offset body key tag properties mqtt_topic qos retain position born_ms stored_ms id topic name"
    return [getattr(message, name) for name in names.split()]


def test_a_message_says_what_was_sent_and_what_the_broker_has_added() -> None:
    sent = Message("orders", b"x", "k", "t", {"a": "b"}, "orders/1", 2, True, 5, "id-1")
    record = bytearray(encode_message(sent, born_ms=1234))
    OFFSETS.pack_into(record, OFFSETS_AT, 77, 99)
    STORED.pack_into(record, STORED_AT, 1250, bytes(8))
    assert shown(decode_message(record, QUEUE)) == [
        *(QUEUE, 77, b"x", "k", "t", {"a": "b"}, "orders/1", 2, True, 99, 1234, 1250, "id-1", "orders", "orders/1")
    ]


def test_messages_are_equal_where_all_of_them_is() -> None:
    one, same = received(Message("orders", b"x", "k")), received(Message("orders", b"x", "k"))
    assert (one == same, hash(one) == hash(same), one == "x") == (True, True, False)
    for other in (Message("orders", b"y", "k"), Message("orders", b"x", "l"), Message("orders", b"x", "k", qos=2)):
        assert one != received(other)


def test_properties_are_read_when_they_are_asked_for() -> None:
    record = encode_record(b"orders", b"x", b"KEYS")
    message = decode_message(record, QUEUE)
    assert (message.body, message.topic, message.offset) == (b"x", "orders", 0)
    for _ in range(2):
        with pytest.raises(InvalidMessage):
            _ = message.key
