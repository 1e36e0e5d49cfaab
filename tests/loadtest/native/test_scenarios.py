"""Every row of the issue has its load and its goal."""

from __future__ import annotations

from loadtest.goals import CACHE, DISK, LOGIN
from loadtest.native.bench import SERVERS
from loadtest.native.scenarios import FRONTS, PROPERTIES, ROCKETMQ, SCENARIOS, SYNC_FRONTS, SYNC_ROCKETMQ
from penstock.protocol.message import encode_properties
from penstock.protocol.selectors.compiling import Selector

SENDS = [("client_us", 3, 1.5, True), ("broker_us", 2, 1, True)]
SINGLES = [("client_us", 20, 10, True), ("broker_us", 5, 3, True)]
CONSUMES = [("consumed_per_s", 1, 0.0, False)]
READS = [("client_us", 2, 1, True), ("broker_us", 0.8, 0.4, True)]


def test_every_row_of_the_issue_has_its_goal() -> None:
    goals = {one.name: [(goal.figure, goal.least, goal.aim, goal.is_upper) for goal in one.goals] for one in SCENARIOS}
    assert goals == {
        "send-many": SENDS,
        "send": SINGLES,
        "consume": READS,
        "consume-four": READS,
        "select": [("broker_us", 3, 2, True)],
        "pipe": [("rate", 120_000, 250_000, False)],
        "timers": [("late_s", 1, 0.5, True)],
        "trace": [("kept", 0.85, 0.0, False)],
        "transactions": [("to_plain", 0.4, 0, False)],
        "pop": [("share", 0.5, 0.0, False)],
        "retry": [("share", 0.7, 0.0, False)],
        "rebalance": [("ordinary_s", 1, 0.3, True), ("ordered_s", 1, 0.3, True)],
        "peer-batches-32": [("rate", 2, 4, False)],
        "peer-batches-128": [("rate", 2, 4, False)],
        "peer-singles": [("rate", 2, 3, False)],
        "login-many": [("rate", 0.95, 0.0, False)],
        "login-single": [("rate", 0.95, 0.0, False)],
        "login-consume": [("rate", 0.95, 0.0, False)],
        "front-singles": [("rate", 1, 0.0, False), *CONSUMES],
        "front-batches-32": [("rate", 0.7, 0.0, False), *CONSUMES],
        "front-sync": [("rate", 2, 0.0, False)],
    }


def test_what_is_read_through_a_filter_passes_it() -> None:
    filters = [one.filter for one in SCENARIOS if one.filter]
    assert filters
    assert all(Selector(one).matches(encode_properties(PROPERTIES), b"") for one in filters)


def test_rows_beside_rocketmq_judge_the_level_that_promises_as_much_and_have_all_cores() -> None:
    peers = [one for one in SCENARIOS if any(goal.is_ratio for goal in one.goals) and one.judged != LOGIN]
    assert {one.name for one in peers} == {one.name for one in SCENARIOS if {ROCKETMQ, SYNC_ROCKETMQ} & {*one.servers}}
    assert all(one.judged in (CACHE, FRONTS, SYNC_FRONTS) and one.is_free for one in peers)
    assert all(one.judged in (DISK, LOGIN) and not one.is_free for one in SCENARIOS if one not in peers)


def test_servers_that_are_judged_are_there() -> None:
    names = {kind.name for kind in SERVERS}
    assert all(set(one.judged) <= set(one.servers) <= names for one in SCENARIOS)


def test_a_demand_says_whose_multiple_it_is() -> None:
    goal = next(goal for one in SCENARIOS for goal in one.goals if goal.is_ratio)
    assert (goal.demand, goal.hope) == ("at least 2.00x rocketmq", "4.00x")
