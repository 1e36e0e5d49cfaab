"""What programs hand to clients."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client.arguments import (
    beginning_of,
    check_count,
    check_flag,
    check_group_name,
    check_integer,
    check_seconds,
    check_text,
    check_wait,
    commit_of,
    queues_of,
    time_ms,
)
from penstock.errors import InvalidRequest
from penstock.protocol.message import Message, decode_message, encode_message
from penstock.protocol.received import MessageQueue

QUEUE = MessageQueue("b", "t", 0)


def test_times_are_milliseconds_whatever_they_were_given_as() -> None:
    when = datetime.fromtimestamp(1_700_000_000.5, UTC)
    assert (time_ms("since", when), time_ms("since", 5), time_ms("since", 0)) == (1_700_000_000_500, 5, 0)
    assert (beginning_of(when), beginning_of(1_700_000_000_500)) == (1_700_000_000_500,) * 2
    assert (beginning_of("earliest"), beginning_of("latest")) == ("earliest", "latest")


@pytest.mark.parametrize("given", ["now", 1.5, -1, True, None, 2**63])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="since is a datetime or whole milliseconds since 1970, not"):
        time_ms("since", given)


def test_a_time_without_a_zone_could_be_any() -> None:
    for refuse in (lambda: time_ms("since", datetime(2026, 1, 1)), lambda: beginning_of(datetime(2026, 1, 1))):
        with pytest.raises(InvalidRequest, match="has no time zone"):
            refuse()


@pytest.mark.parametrize("start", [0, 12, 1_700_000_000, True, 1.5, "first", None, 2**63])
def test_an_offset_or_seconds_are_no_beginning(start: Any) -> None:
    with pytest.raises(InvalidRequest, match="start is 'earliest', 'latest', a datetime"):
        beginning_of(start)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("10", "wait is a number of seconds, not '10'"),
        (float("nan"), "wait is a number of seconds, not nan"),
        (True, "wait is a number of seconds, not True"),
        (None, "wait is a number of seconds, not None"),
        (10**400, "wait is a number of seconds, not 1000"),
        (-1, "wait is at least 0 s, not -1"),
    ],
)
def test_what_is_no_number_of_seconds_is_refused(given: Any, told: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        check_seconds("wait", given)


def test_numbers_of_seconds_pass_from_their_least_on() -> None:
    for given in (0, 0.5, float("inf")):
        check_seconds("wait", given)
    check_seconds("session", 1, at_least=1)
    with pytest.raises(InvalidRequest, match="session is at least 1 s, not 0"):
        check_seconds("session", 0, at_least=1)


@pytest.mark.parametrize("given", [0, -1, 1.0, "1", True, None])
def test_a_count_is_a_whole_number_from_1_on(given: Any) -> None:
    check_count("batch_max", 1)
    with pytest.raises(InvalidRequest, match="batch_max is a whole number from 1 on"):
        check_count("batch_max", given)


@pytest.mark.parametrize(("given", "told"), [(["a"], "group is a str, not"), ("", "group is empty"), (b"g", "a str")])
def test_a_text_is_a_text_with_something_in_it(given: Any, told: str) -> None:
    check_text("group", "g")
    with pytest.raises(InvalidRequest, match=told):
        check_text("group", given)


def test_queues_come_alone_or_as_several() -> None:
    assert queues_of(QUEUE) == queues_of([QUEUE]) == queues_of({QUEUE: 1}) == [QUEUE]
    for wrong in ("t:0", 5, ("b", "t", 0), [QUEUE, "t:0"], None):
        with pytest.raises(InvalidRequest, match="MessageQueue"):
            queues_of(wrong)  # type: ignore[arg-type]


def test_a_commit_is_of_a_message_or_of_offsets() -> None:
    message = decode_message(encode_message(Message("t", b"x")), QUEUE)
    assert commit_of(message) == {QUEUE: 1}
    assert commit_of({QUEUE: 7}) == {QUEUE: 7}
    for wrong in ([message], Message("t", b"x"), 7, {QUEUE: "7"}, {QUEUE: -1}, {"t:0": 1}):
        with pytest.raises(InvalidRequest):
            commit_of(wrong)


@pytest.mark.parametrize("given", [float("inf"), 1e300, 1_000_001])
def test_a_socket_does_not_wait_for_ever(given: float) -> None:
    check_wait("timeout_s", 1_000_000)
    with pytest.raises(InvalidRequest, match="timeout_s is at most 1_000_000 s"):
        check_wait("timeout_s", given)


def test_a_whole_number_travels_and_a_flag_is_a_bool() -> None:
    for given in (0, -1, 2**63 - 1):
        check_integer("id", given)
    for wrong in (None, "1", 1.0, True, [], 2**63, -(2**63)):
        with pytest.raises(InvalidRequest, match=r"id is (a whole number|at most 9|at least -9)"):
            check_integer("id", wrong)
    check_flag("force", True)
    for other in (None, 1, "x"):
        with pytest.raises(InvalidRequest, match="force is True or False, not"):
            check_flag("force", other)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a#b", "holds #"),
        ("prices@host-1", "holds @"),
        ("%RETRY%g", "holds %RETRY%"),
        ("%DLQ%g", "holds %DLQ%"),
        ("", "is empty"),
    ],
)
def test_a_group_is_named_as_no_other_thing_is(given: str, told: str) -> None:
    check_group_name("billing %2 Zürich/a+b")
    with pytest.raises(InvalidRequest, match=f"group .*{told}"):
        check_group_name(given)
