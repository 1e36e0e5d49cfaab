"""Delayed messages, as the first clients asked for them."""

from __future__ import annotations

from penstock.protocol.requests import timers
from penstock.protocol.requests.timers import CancelTimer, ListTimers, SetTimers, Timer, TimerSet, TimersPage, TimersSet
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(timers) == {150: "SetTimers", 151: "CancelTimer", 152: "ListTimers", 153: "ConfirmClock"}


def test_messages_come_as_the_body_with_a_time_for_each() -> None:
    assert asked(150, [5, 6], True, body=b"records") == SetTimers((5, 6), True, b"records")
    assert answered(SetTimers, [[7, 5], [9, 6]]) == TimersSet((TimerSet(7, 5), TimerSet(9, 6)), ())


def test_id_and_due_time_name_a_timer() -> None:
    assert asked(151, 7, 5) == CancelTimer(7, 5)


def test_a_list_begins_at_the_beginning_unless_asked() -> None:
    assert asked(152) == ListTimers(0, 0, 100)
    page = TimersPage((Timer(7, 5, "t", "k", 100, damaged=False),), 0, 0, 1, 200)
    assert answered(ListTimers, [[7, 5, "t", "k", 100]], 0, 0, 1, 200) == page
