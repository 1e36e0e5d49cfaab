"""Bugs of transactions that somebody would write, each planted and caught by the tests of halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.producers.repeats import Repeats
from broker.transactions import requests
from broker.transactions.fold import COMMITTED, Half, Halves
from broker.transactions.requests import TransactionRequests
from penstock.client.halves import Beginning
from penstock.client.sending import once_more
from penstock.protocol.requests.transactions import HalfOutcome
from tests.broker.transactions import test_begun
from tests.broker.transactions import test_requests as halves
from tests.penstock.client import test_transaction as blocks

sound_restore = Halves.restore


def a_half_ends_with_the_first_of_its_messages(self: Halves, id: int, count: int) -> None:
    self._end(id, COMMITTED)


def what_a_commit_has_stored_is_counted_in_memory_only(self: Halves, snapshot: Any) -> None:
    sound_restore(self, snapshot)
    self._woken = {}


def a_second_outcome_overwrites_the_first(self: TransactionRequests, wanted: HalfOutcome) -> str:
    return wanted.outcome


def a_check_counts_with_no_producer_there(id: int, *, is_asked: bool) -> list[Any]:
    return ["round", id, True]


def nobody_finishes_a_commit_that_was_cut_off(self: TransactionRequests, id: int, half: Half) -> None:
    pass


def a_half_that_got_no_outcome_is_dropped(self: TransactionRequests, id: int, reason: str) -> None:
    self._halves._end(id, "rollback")
    self._schedule.drop(id)


def any_number_is_checked_at_once(self: TransactionRequests, group: str) -> int:
    return 64


def a_begin_without_an_answer_is_repeated(self: Beginning, outgoing: Any) -> Any:
    return once_more(outgoing)


PLANTS: list[tuple[type, str, Callable[..., Any], Callable[[], Any]]] = [
    (
        Halves,
        "_wake",
        a_half_ends_with_the_first_of_its_messages,
        halves.test_what_power_cut_off_of_a_commit_is_stored_by_itself_and_cannot_be_rolled_back,
    ),
    (
        TransactionRequests,
        "_finish",
        nobody_finishes_a_commit_that_was_cut_off,
        halves.test_what_power_cut_off_of_a_commit_is_stored_by_itself_and_cannot_be_rolled_back,
    ),
    (
        TransactionRequests,
        "_stands",
        a_second_outcome_overwrites_the_first,
        halves.test_the_first_outcome_stands_and_the_second_hears_which,
    ),
    (
        Halves,
        "round",
        staticmethod(a_check_counts_with_no_producer_there),
        halves.test_without_any_producer_a_half_is_parked_and_the_first_producer_that_comes_is_asked,
    ),
    (
        TransactionRequests,
        "_park",
        a_half_that_got_no_outcome_is_dropped,
        halves.test_a_half_without_an_outcome_is_parked_after_so_many_checks_and_an_operator_commits_it,
    ),
]


@pytest.mark.parametrize(("kind", "name", "bug", "proof"), PLANTS, ids=[name for _, name, _, _ in PLANTS])
def test_a_planted_bug_is_caught(
    kind: type, name: str, bug: Any, proof: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, bug)
    with pytest.raises((AssertionError, KeyError)):
        proof()


def test_a_half_that_begins_anew_each_time_it_is_asked_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeats, "are_stored", lambda self, numbers: False)
    with pytest.raises(AssertionError):
        test_begun.test_a_begin_that_is_repeated_is_the_half_that_it_was_also_after_a_restart(power=True)


def test_a_count_that_is_in_memory_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.broker.transactions import test_fold

    monkeypatch.setattr(Halves, "restore", what_a_commit_has_stored_is_counted_in_memory_only)
    with pytest.raises(AssertionError):
        test_fold.test_a_half_of_several_messages_ends_with_the_last_one_and_a_snapshot_knows_how_many_there_are()


def test_a_storm_of_checks_after_a_failover_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RAMP_S", 0.0)
    with pytest.raises(AssertionError, match="a storm"):
        halves.test_after_a_failover_producers_are_asked_little_by_little_however_many_of_them_wait()
    monkeypatch.setattr(TransactionRequests, "_allowed", any_number_is_checked_at_once)
    with pytest.raises(AssertionError, match="a storm"):
        halves.test_after_a_failover_producers_are_asked_little_by_little_however_many_of_them_wait()
    with pytest.raises(AssertionError):
        halves.test_a_group_is_asked_about_so_many_halves_in_a_second_and_the_others_lose_no_round()


async def test_a_begin_that_is_repeated_without_an_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Beginning, "again", a_begin_without_an_answer_is_repeated)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await blocks.test_a_begin_whose_answer_was_lost_is_tried_again_if_the_broker_knows_its_messages()
