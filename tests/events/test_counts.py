from __future__ import annotations

from events.counts import RuleCounts, figures_of


def test_the_oldest_event_in_hand_has_an_age() -> None:
    counts = RuleCounts()
    assert counts.oldest_s(9_000) == 0.0
    for stored_ms in (1_000, 1_000, 5_000):
        counts.began(stored_ms)
    counts.ended(1_000)
    assert counts.oldest_s(9_000) == 8.0
    counts.ended(1_000)
    assert counts.oldest_s(9_000) == 4.0


def test_figures_are_by_bus_and_rule() -> None:
    figures = figures_of({("b", "r"): RuleCounts(matched=3, delivered=2, failed=1)}, 0)
    assert figures["events_rules"] == 1
    assert figures['events_delivered_total{bus="b",rule="r"}'] == 2


def test_a_rule_says_whether_it_runs() -> None:
    states = [RuleCounts(), RuleCounts(trouble="no target"), RuleCounts(is_breaker_open=True)]
    assert [one.document(0)["state"] for one in states] == ["runs", "waits", "paused"]
