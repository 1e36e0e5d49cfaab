"""What a handler's failure asks for, and the request that gives a message back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.attempts import USUAL, Attempts, Retry, attempts_of, check_received, retry_of
from penstock.errors import InvalidRequest
from penstock.protocol.message import ATTEMPTS_AT, Message, encode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.retries import BY_TABLE, SendBack

WHO = ("g", "m", 7)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def received(attempts: int = 0) -> ReceivedMessage:
    record = bytearray(encode_message(Message("orders", b"")))
    record[ATTEMPTS_AT : ATTEMPTS_AT + 4] = attempts.to_bytes(4, "big")
    return ReceivedMessage(MessageQueue("b", "orders", 1), 5, b"", bytes(record[:88]), bytes(record[88:]))


def test_the_broker_decides_when_unless_the_group_or_the_program_does() -> None:
    assert USUAL.send_back(WHO, received(), None, "why") == SendBack(*WHO, "orders:1", 5, BY_TABLE, 16, "why")
    own = Attempts(4, (0.5, 2))
    assert [own.send_back(WHO, received(at), None, "").delay_ms for at in range(4)] == [500, 2000, 2000, 2000]
    assert own.send_back(WHO, received(3), 0, "x" * 5000) == SendBack(*WHO, "orders:1", 5, 0, 4, "x" * 1024)


def test_a_reason_that_is_no_unicode_can_be_stored() -> None:
    assert USUAL.send_back(WHO, received(), None, "no file caf\udce9").reason == "no file caf\\udce9"


def test_a_reason_is_the_failure_in_words_and_a_wish_is_found_in_a_task_group() -> None:
    assert retry_of(ValueError("no such account")) == (None, "ValueError: no such account")
    assert retry_of(KeyError()) == (None, "KeyError")
    group = ExceptionGroup("tasks", [ValueError("x"), ExceptionGroup("inner", [Retry(3, "busy")])])
    assert retry_of(group) == (3, "busy")
    assert retry_of(Speechless()) == (None, "Speechless")
    assert retry_of(Retry()) == (None, "the handler asked for another attempt")


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: Retry(-1), "after_s is at least 0"),
        (lambda: Retry(40 * 86_400 + 1), "at most 3456000 s"),
        (lambda: attempts_of(0, None), "attempts_max is a whole number from 1 on"),
        (lambda: attempts_of(3, [1, "x"]), "a delay of retry_delays_s is a number"),  # type: ignore[list-item]
        (lambda: attempts_of(3, 5), "retry_delays_s are seconds, not 5"),  # type: ignore[arg-type]
        (lambda: check_received(Message("orders", b"")), "nack takes a received message"),
        (lambda: check_received(Message("orders", b""), "ack"), "ack takes a received message"),
    ],
)
def test_what_makes_no_sense_is_told_at_once(use: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        use()
