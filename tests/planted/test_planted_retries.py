"""Bugs of retries and popped queues that somebody would write, each planted and caught by the test that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.groups.retries import RetryRequests
from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.messages.dead_letters import DeadLetters
from broker.shares.pop_leases import PopLeases
from broker.shares.pops import PopRequests
from penstock.client.positions import Position
from penstock.client.unfinished import Unfinished
from penstock.protocol.requests.pops import AckPopped
from penstock.protocol.requests.retries import SendAllBack, SendBack
from tests.broker.groups import test_retries
from tests.broker.shares import test_pop_leases, test_pops
from tests.penstock.client import test_positions, test_unfinished

sound_retry = DeadLetters.retry


def at_once(outcome: Outcome) -> Outcome:
    return Now(outcome.result) if isinstance(outcome, AfterQuorum) else outcome


sound_send_back, sound_send_all_back = RetryRequests.send_back, RetryRequests.send_all_back
sound_acknowledge = PopRequests.acknowledge


@handles(SendBack)
def sent_back_before_it_is_durable(self: RetryRequests, request: SendBack, now: float, now_ms: int) -> Outcome:
    return at_once(sound_send_back(self, request, now, now_ms))


@handles(SendAllBack)
def all_sent_back_before_they_are_durable(
    self: RetryRequests, request: SendAllBack, now: float, now_ms: int
) -> Outcome:
    return at_once(sound_send_all_back(self, request, now, now_ms))


@handles(AckPopped)
def acknowledged_before_it_is_durable(self: PopRequests, request: AckPopped, now: float, now_ms: int) -> Outcome:
    return at_once(sound_acknowledge(self, request, now, now_ms))


def attempts_are_lost(
    self: DeadLetters, group: str, record: bytes, reason: str, now_ms: int, attempts: int, **origin: str
) -> Any:
    return sound_retry(self, group, record, reason, now_ms, 0, **origin)


def a_lease_survives_what_settles_it(self: PopLeases, first: int, end: int) -> None:
    pass


def handed_out_counts_as_passed(self: Position) -> int:
    return self.handed_out


def the_last_finished_counts(self: Unfinished, offset: int) -> None:
    while self._taken and self._taken[0] <= offset:
        self._taken.popleft()


PLANTS: list[tuple[object, str, Any, Callable[[], None]]] = [
    (
        RetryRequests,
        "send_back",
        sent_back_before_it_is_durable,
        test_retries.test_nothing_is_answered_before_it_is_durable,
    ),
    (
        RetryRequests,
        "send_all_back",
        all_sent_back_before_they_are_durable,
        test_retries.test_several_messages_are_given_back_together_each_with_an_answer_of_its_own,
    ),
    (
        PopRequests,
        "acknowledge",
        acknowledged_before_it_is_durable,
        test_pops.test_an_acknowledgement_is_answered_when_it_is_durable_and_stays_over_restarts,
    ),
    (
        DeadLetters,
        "retry",
        attempts_are_lost,
        test_retries.test_a_message_comes_again_by_the_table_and_is_a_dead_letter_at_the_last_attempt,
    ),
    (
        PopLeases,
        "settle",
        a_lease_survives_what_settles_it,
        test_pop_leases.test_a_settled_message_is_never_owed_again,
    ),
    (
        Position,
        "passed",
        property(handed_out_counts_as_passed),
        test_positions.test_a_position_that_is_handed_over_passes_what_is_finished,
    ),
    (
        Unfinished,
        "finish",
        the_last_finished_counts,
        test_unfinished.test_the_floor_is_the_lowest_unfinished_message_whatever_is_finished_first,
    ),
]


@pytest.mark.parametrize(
    ("owner", "name", "bug", "killer"), PLANTS, ids=[f"{plant[1]}-{at}" for at, plant in enumerate(PLANTS)]
)
def test_a_planted_bug_is_caught(
    owner: object, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, KeyError, IndexError, BaseExceptionGroup)):
        killer()
