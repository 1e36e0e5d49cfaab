"""Token buckets: never more than their rate, and a bounded number of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.service import buckets
from penstock.service.buckets import Bucket, Buckets, host_of

STEPS = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 50)), max_size=50)


@given(STEPS)
def test_whoever_waits_as_long_as_it_is_told_gets_its_rate_and_one_seconds_worth(
    steps: list[tuple[float, int]],
) -> None:
    rate, now, spent, last = 10.0, 100.0, 0, 0
    bucket = Bucket(rate, now)
    for idle_s, count in steps:
        now += idle_s + bucket.spend(0, now + idle_s)
        bucket.spend(count, now)
        spent, last = spent + count, count
        assert spent - last <= rate * (now - 100.0) + rate + 1e-6


@given(STEPS)
def test_a_bucket_that_is_asked_politely_never_gives_more_than_its_rate(steps: list[tuple[float, int]]) -> None:
    now, taken = 0.0, 0
    bucket = Bucket(3.0, now)
    for idle_s, count in steps:
        now += idle_s
        taken += sum(bucket.take(now) for _ in range(count))
        assert taken <= 3.0 * now + 3.0 + 1e-6


@given(STEPS)
def test_a_bucket_keeps_what_it_is_told_and_what_was_spent_beyond_it_is_owed(steps: list[tuple[float, int]]) -> None:
    now, spent = 0.0, 0
    bucket = Bucket(2.0, now, 20.0)
    for idle_s, count in steps:
        now += idle_s
        if bucket.has(now):
            bucket.spend(count, now)
            spent += count
        assert spent <= 2.0 * now + 20.0 + 50


def test_each_key_has_a_bucket_of_its_own_and_0_is_no_limit() -> None:
    limited, free = Buckets(1.0), Buckets(0.0)
    assert [limited.take("a", 0.0), limited.take("a", 0.0), limited.take("b", 0.0)] == [True, False, True]
    assert not limited.has("a", 0.5)
    assert limited.has("a", 1.0)
    assert limited.has("never seen", 0.0)
    for _ in range(10):
        free.spend("a", 0.0)
        assert free.take("a", 0.0)
        assert free.has("a", 0.0)
    assert (limited.is_limit, free.is_limit, len(free)) == (True, False, 0)


def test_the_keys_that_are_remembered_are_bounded_and_the_full_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buckets, "KEYS_MAX", 10)
    made = Buckets(1.0, 100.0)
    for one in range(100):
        made.spend(f"k{one}", one * 0.5)
        assert len(made) <= 10
    made = Buckets(0.001, 100.0)
    for one in range(11):
        for _ in range(200):
            made.spend(f"k{one}", 0.0)
    assert len(made) == 6
    assert made.has("k0", 0.0), "forgotten"
    assert not made.has("k9", 0.0)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1:ffff::2", "20010db800000001::/64"),
        ("fe80::1%eth0", "fe80000000000000::/64"),
        ("a socket", "a socket"),
        ("odd:one", "odd:one"),
    ],
)
def test_what_counts_as_one_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_a_token_that_is_given_back_is_there_again_and_no_bucket_overflows() -> None:
    buckets = Buckets(1.0, 2.0)
    buckets.give_back("never seen", 0.0)
    buckets.spend("a", 0.0)
    buckets.spend("a", 0.0)
    assert not buckets.has("a", 0.0)
    for _ in range(5):
        buckets.give_back("a", 0.0)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
