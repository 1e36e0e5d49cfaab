from __future__ import annotations

from events.counts import RETRIES_MAX, RETRY_GRACE_MS, RuleCounts, figures_of


def test_the_oldest_event_in_hand_has_an_age() -> None:
    counts = RuleCounts()
    assert counts.oldest_s(9_000) == 0.0
    for stored_ms in (1_000, 1_000, 5_000):
        counts.began(stored_ms)
    counts.ended(1_000)
    assert counts.oldest_s(9_000) == 8.0
    counts.ended(1_000)
    assert counts.oldest_s(9_000) == 4.0


def test_an_event_that_waits_for_a_retry_is_undelivered_until_it_comes_or_another_instance_has_it() -> None:
    counts = RuleCounts()
    counts.began(1_000)
    counts.ended(1_000)
    counts.given_back(1_000, 60_000)
    assert counts.oldest_s(61_000) == 60.0
    counts.began(1_000)
    counts.ended(1_000)
    assert counts.oldest_s(61_000) == 0.0
    counts.given_back(1_000, 60_000)
    assert counts.oldest_s(60_001 + RETRY_GRACE_MS) == 0.0


def test_of_many_retries_the_oldest_are_known() -> None:
    counts = RuleCounts()
    for stored_ms in range(RETRIES_MAX, -10, -1):
        counts.given_back(stored_ms, 5_000)
    counts.given_back(RETRIES_MAX + 1, 5_000)
    assert (len(counts.retries), min(counts.retries)) == (RETRIES_MAX, -9)


def test_figures_are_by_bus_and_rule() -> None:
    figures = figures_of({("b", "r"): RuleCounts(matched=3, delivered=2, failed=1)}, 0)
    assert figures["events_rules"] == 1
    assert figures['events_delivered_total{bus="b",rule="r"}'] == 2


def test_a_rule_says_whether_it_runs() -> None:
    states = [RuleCounts(), RuleCounts(trouble="no target"), RuleCounts(is_breaker_open=True)]
    assert [one.document(0)["state"] for one in states] == ["runs", "waits", "paused"]
    assert RuleCounts(is_resting=True).document(0)["state"] == "rests"
