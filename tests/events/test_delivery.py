from __future__ import annotations

import random
from typing import Any

import pytest

from events.delivery import BACKOFF, DECAY, Breaker, Failed, Rate, RetryPolicy, judge, policy_of, retry_after_s
from events.problems import Problem

NOW_MS = 1_700_000_000_000
RNG = random.Random(1)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_two_hundreds_are_deliveries(status: int) -> None:
    judge(status, {}, b"", NOW_MS)


@pytest.mark.parametrize(("status", "is_final"), [(302, True), (400, True), (404, True), (410, True), (408, False)])
@pytest.mark.parametrize("body", [b"", b"why\r\n\xff"])
def test_other_answers_are_final_or_not(status: int, is_final: bool, body: bytes) -> None:
    with pytest.raises(Failed) as caught:
        judge(status, {}, body, NOW_MS)
    assert caught.value.is_final == is_final


@pytest.mark.parametrize("status", [429, 500, 503, 599])
def test_a_target_says_when_it_wants_to_be_asked_again(status: int) -> None:
    with pytest.raises(Failed) as caught:
        judge(status, {"retry-after": "7"}, b"", NOW_MS)
    assert (caught.value.is_final, caught.value.after_s) == (False, 7.0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("120", 120.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2000 22:13:30 GMT", 0.0),
        ("999999999", 86_400.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("Tue, 99 Nov 2023", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, wanted: float | None) -> None:
    assert retry_after_s(text, NOW_MS) == wanted


def test_decay_doubles_up_to_its_cap_and_lasts_a_day() -> None:
    waits = [DECAY.wait_s(failed, RNG) for failed in range(1, 12)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512]
    last = next(failed for failed in range(1, 1_000) if DECAY.wait_s(failed, RNG) is None)
    assert sum(DECAY.wait_s(failed, RNG) or 0 for failed in range(1, last)) <= 86_400
    assert last == 177


def test_backoff_waits_ten_to_twenty_seconds_twice() -> None:
    assert all(10 <= (BACKOFF.wait_s(failed, RNG) or 0) <= 20 for failed in (1, 2))
    assert BACKOFF.wait_s(3, RNG) is None


def test_a_policy_keeps_what_is_not_said() -> None:
    assert policy_of({"kind": "backoff", "attempts": 5}) == RetryPolicy("backoff", 5, 10.0, 20.0)
    assert policy_of(None) is DECAY


@pytest.mark.parametrize(
    "wrong", ["decay", {"kind": "never"}, {"attempts": 0}, {"attempts": 1.5}, {"first_s": 9, "cap_s": 1}, {"x": 1}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(Problem):
        policy_of(wrong)


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_try() -> None:
    breaker = Breaker(failures=2, first_s=1.0, cap_s=3.0)
    breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(0.0)
    assert not breaker.is_open
    breaker.failed(0.0)
    assert breaker.wait_s(0.5) == 0.5
    assert breaker.wait_s(1.0) == 0.0
    assert breaker.wait_s(1.0) > 0, "another attempt waits for the one that tries"
    breaker.failed(1.0)
    assert breaker.wait_s(1.0) == 2.0
    assert breaker.wait_s(3.0) == 0.0
    breaker.given_up()
    assert breaker.wait_s(3.0) == 0.0
    breaker.succeeded()
    assert (breaker.wait_s(3.0), breaker.is_open) == (0.0, False)


def test_a_rate_spreads_what_is_over_one_seconds_worth() -> None:
    rate = Rate(10.0)
    assert [rate.take(100.0) for _ in range(10)] == [0.0] * 10
    assert rate.take(100.0) == pytest.approx(0.1)
    assert rate.take(101.0) == 0.0
    assert Rate(0.0).take(1.0) == 0.0
