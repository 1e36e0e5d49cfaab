"""The likely bugs of messaging that issue 42 names by number or in words: each is planted, and caught, somewhere.

Each planted bug has its own test, beside it. This table says which one is which, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.producers import test_repeats
from tests.planted import (
    test_planted_commit,
    test_planted_groups,
    test_planted_retries,
    test_planted_store,
    test_planted_transactions,
)
from tests.simulation import test_messaging as hour

groups, retries, halves, store = (
    test_planted_groups,
    test_planted_retries,
    test_planted_transactions,
    test_planted_store,
)
Bug = Callable[..., Any]
NAMED: dict[str, list[Bug]] = {
    "B20 applied beyond the commit": [
        test_planted_commit.what_this_disk_has_is_read_whatever_is_committed,
        test_planted_commit.what_is_durable_is_applied_at_once,
    ],
    "B21 replication degraded without a word": [
        test_planted_commit.a_copy_that_lags_is_left_out,
        test_planted_commit.a_quorum_is_this_disk,
    ],
    "B22 committed beyond what is unprocessed": [
        hour.commit_what_was_read_ahead,
        retries.handed_out_counts_as_passed,
        retries.the_last_finished_counts,
    ],
    "B23 offset reset at a rebalance": [hour.begin_at_the_first_message_after_a_rebalance],
    "B24 an old owner commits": [groups.a_late_owner_commits],
    "B25 two consumers on an ordered queue": [groups.two_holders_of_an_ordered_queue_while_the_old_one_works],
    "B26 given back, and acknowledged before that is stored": [
        hour.answer_for_a_retry_before_it_is_durable,
        hour.pass_what_was_not_given_back,
        retries.sent_back_before_it_is_durable,
    ],
    "B27 a dead letter is not stored": [hour.swallow_dead_letters],
    "B28 edges of delays": [
        hour.wait_for_the_end_of_the_minute,
        hour.deliver_the_whole_minute,
        hour.leave_out_the_minute_of_the_restart,
        hour.believe_what_the_clock_says,
    ],
    "B29 a half is seen, or committed after its rollback": [
        hour.show_halves_at_once,
        hour.let_a_second_outcome_overwrite_the_first,
    ],
    "B30 storm of checks": [hour.count_checks_that_nobody_had, halves.any_number_is_checked_at_once],
    "B31 dropped after the last check": [
        hour.drop_halves_after_the_last_check,
        halves.a_half_that_got_no_outcome_is_dropped,
    ],
    "B43 a batch is stored in part": [store.a_batch_is_stored_one_by_one],
    "B48 an unknown outcome is told as a failure": [hour.take_an_unknown_outcome_for_a_failure],
    "B8 fired in another append": [hour.say_that_it_fired_in_another_append],
    "B8 retention takes what sleeps": [hour.let_retention_take_what_sleeps, hour.let_retention_take_halves],
    "B8 a second outcome overwrites": [hour.agree_with_any_outcome, halves.a_second_outcome_overwrites_the_first],
    "B8 a check counts with nobody there": [halves.a_check_counts_with_no_producer_there],
    "B8 attempts are lost": [hour.forget_how_often_it_was_tried, retries.attempts_are_lost],
    "B8 a lease survives what settles it": [retries.a_lease_survives_what_settles_it],
    "B8 the window is in memory only": [test_repeats.window_from_memory_only],
}


def planted() -> set[Bug]:
    """All bugs that a test plants."""
    rows: list[Any] = [*hour.PLANTS, *store.PLANTS, *groups.PLANTS, *retries.PLANTS, *halves.PLANTS]
    rows += [
        *test_planted_commit.PLANTS,
        (test_repeats.window_from_memory_only,),
        (halves.any_number_is_checked_at_once,),
    ]
    found: set[Bug] = set()
    for part in [part for row in rows for part in row]:
        bug = part.__func__ if isinstance(part, staticmethod) else part.fget if isinstance(part, property) else part
        if callable(bug):
            found.add(bug)
    return found


@pytest.mark.parametrize("bug", NAMED)
def test_each_bug_that_the_issue_names_is_planted(bug: str) -> None:
    assert NAMED[bug]
    assert set(NAMED[bug]) <= planted()


def test_no_number_is_left_out() -> None:
    numbers = {bug.split()[0] for bug in NAMED}
    assert numbers == {"B8", *[f"B{number}" for number in range(20, 32)], "B43", "B48"}
