"""Goals: which values reach them, and how they are told."""

from __future__ import annotations

import pytest

from loadtest.goals import CACHE, DISK, at_least, at_most, bound
from loadtest.scenarios import SCENARIOS
from loadtest.servers import SERVERS

RATE = at_least(3, 5)[0]
TIME = at_most("p50", "p50_us", 1.3, 1)
MEMORY = bound("RSS", "idle_bytes", 4096, 1800, "KiB", 1024)[0]


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (RATE, 2.99, "no"),
        (RATE, 3.0, "yes"),
        (RATE, 5.0, "yes, aim too"),
        (TIME, 1.31, "no"),
        (TIME, 1.3, "yes"),
        (TIME, 0.9, "yes, aim too"),
        (MEMORY, 4097, "no"),
        (MEMORY, 4096, "yes"),
        (bound("cost", "cost_ratio", 1.2, 0, "x")[0], 0.1, "yes"),
    ],
)
def test_a_value_reaches_a_goal_at_its_bound(goal: object, value: float, verdict: str) -> None:
    assert goal.verdict(value) == verdict  # type: ignore[attr-defined]


def test_goals_are_told_in_their_units() -> None:
    assert (RATE.demand, RATE.hope, RATE.told(0.814)) == ("at least 3.00x mosquitto", "5.00x", "0.81x")
    assert (MEMORY.demand, MEMORY.hope, MEMORY.told(5243)) == ("at most 4.00 KiB", "1.76 KiB", "5.12 KiB")
    assert bound("cost", "cost_ratio", 1.2, 0, "x")[0].hope == "-"


WAITS = [("coming_ms", 250, 100, True), ("going_ms", 250, 100, True)]


def test_every_row_of_the_issues_has_its_goal() -> None:
    goals = {one.name: [(goal.figure, goal.least, goal.aim, goal.is_upper) for goal in one.goals] for one in SCENARIOS}
    assert {name: goal for name, goal in goals.items() if goal} == {
        "publish": [("rate", 3, 5, False)],
        "connections": [("rate", 1, 1.3, False)],
        "one-to-one": [("rate", 5, 8, False)],
        "pairs": [("rate", 3, 5, False)],
        "fan-out": [("rate", 8, 12, False)],
        "round-trip": [("p50_us", 1.3, 1, True)],
        "paced-acks": [("p99_us", 10_000, 2_000, True)],
        "paced-one-to-one": [("p50_us", 2, 1, True), ("cpu_us", 2, 1, True)],
        "idle": [("idle_bytes", 4096, 1800, True)],
        "backlog": [("with_without", 1.1, 1.0, True)],
        "reconnect": [("reconnect_s", 10, 3, True)],
        "neighbour": WAITS,
        "neighbour-slow": WAITS,
        "neighbour-idle": WAITS,
        "neighbour-retained": WAITS,
        "neighbour-filters": WAITS,
        "filters": [("cost_ratio", 1.2, 0, True)],
    }
    assert {one.name for one in SCENARIOS if one.judged == CACHE} == {"round-trip", "paced-one-to-one"}


def test_goals_are_for_servers_that_there_are() -> None:
    names = {kind.name for kind in SERVERS}
    assert {*DISK, *CACHE} <= names
    assert all(set(one.servers) <= names and set(one.judged) <= set(one.servers or names) for one in SCENARIOS)
