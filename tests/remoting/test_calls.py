"""Errors in the numbers that RocketMQ's clients know."""

from __future__ import annotations

import pytest

from penstock.errors import (
    Busy,
    Fenced,
    InvalidMessage,
    NotAllowed,
    PenstockError,
    QueueNotFound,
    StorageFull,
    TimedOut,
    TopicNotFound,
)
from remoting import codes
from remoting.calls import refusal
from remoting.frames import Command

RETRIED = {
    codes.SYSTEM_ERROR,
    codes.SYSTEM_BUSY,
    codes.SERVICE_NOT_AVAILABLE,
    codes.NO_PERMISSION,
    codes.TOPIC_NOT_EXIST,
}
"""After which producers try another broker or again."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("x"), codes.TOPIC_NOT_EXIST),
        (InvalidMessage("x"), codes.MESSAGE_ILLEGAL),
        (StorageFull("x"), codes.SERVICE_NOT_AVAILABLE),
        (Busy("x"), codes.SYSTEM_BUSY),
        (NotAllowed("x"), codes.NO_PERMISSION),
        (TimedOut("x"), codes.FLUSH_DISK_TIMEOUT),
        (QueueNotFound("x"), codes.SYSTEM_ERROR),
        (Fenced("x"), codes.SYSTEM_ERROR),
    ],
)
def test_errors_have_rocketmqs_numbers(error: PenstockError, code: int) -> None:
    answer = refusal(Command(1, 77), error)
    assert (answer.code, answer.opaque, answer.is_response, answer.remark) == (code, 77, True, "x")


def test_what_was_surely_not_stored_is_tried_again_and_what_may_be_is_not() -> None:
    assert refusal(Command(1), StorageFull("x")).code in RETRIED
    assert refusal(Command(1), TimedOut("x")).code not in RETRIED
