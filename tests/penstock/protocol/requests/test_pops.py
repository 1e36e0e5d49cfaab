"""Popped messages, as the first consumers took them."""

from __future__ import annotations

from penstock.protocol.requests import pops
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, Pop, Popped, Range, SendPoppedBack
from penstock.protocol.requests.retries import SentBack
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(pops) == {125: "Pop", 126: "AckPopped", 127: "ExtendPopped", 128: "SendPoppedBack", 129: "LeavePopped"}


def test_a_taker_has_messages_for_a_minute_and_waits_for_none_unless_asked() -> None:
    assert asked(125, "g", "t:0", "a", 5) == Pop("g", "t:0", "a", 5, 60.0, 500, 1 << 20, 0.0, 16)
    assert answered(Pop, 1, 2, 6, 9, body=b"x") == Popped(1, 2, 6, 9, b"x")


def test_ranges_are_pairs() -> None:
    assert asked(126, "g", "t:0", [[1, 3], [5, 6]]) == AckPopped("g", "t:0", (Range(1, 3), Range(5, 6)))
    assert asked(127, "g", "t:0", "a", [[1, 3]], 0.0) == ExtendPopped("g", "t:0", "a", (Range(1, 3),), 0.0)


def test_a_message_that_is_given_back_comes_again_by_the_table_unless_asked() -> None:
    assert asked(128, "g", "t:0", "a", 7) == SendPoppedBack("g", "t:0", "a", 7, -1, 16, "")
    assert answered(SendPoppedBack, 2, 1_000) == SentBack(2, 1_000)
