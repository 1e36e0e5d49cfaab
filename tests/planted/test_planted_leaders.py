"""Bugs of those who follow a leader, numbered as in issue 46, each planted and caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.lineage.epoch import Epoch
from broker.net.lead import BrokerSession
from broker.net.parked import ParkedRequests
from namesrv.registry import Registry
from penstock.errors import PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request
from tests.broker.lineage import test_epoch as epochs
from tests.broker.net import test_lead as leads
from tests.namesrv import test_registry as names


def give_the_name_to_a_lower_epoch(self: Registry, *_: Any) -> None:
    pass


def forget_the_epoch_with_the_lease(self: Registry, name: str, log_id: str) -> int:
    return 0


def let_parked_requests_wait_on(self: ParkedRequests, error: PenstockError) -> None:
    pass


def keep_to_the_first_leadership(self: BrokerSession, request: Request, on_result: OnResult) -> None:
    kept = vars(self).setdefault("_kept", self._lead.dispatch)
    kept.submit(request, on_result, self._number)


def number_generations_anew(self: Epoch) -> int:
    return 1 << 61


def case(test: Callable[[], None]) -> Callable[[], None]:
    def killer() -> None:
        with pytest.raises((AssertionError, ValueError)):
            test()

    return killer


HIGHEST = case(names.test_the_leader_of_a_higher_epoch_takes_the_name_at_once_and_none_of_a_lower_one_gets_it_back)
DEMOTED = case(leads.test_stepping_down_answers_all_that_waits_and_refuses_what_comes)
PLANTS: list[tuple[str, Any, str, Any, Callable[[], None]]] = [
    ("R19", Registry, "_check_name_is_free", give_the_name_to_a_lower_epoch, HIGHEST),
    ("R19", Registry, "_epoch_of", forget_the_epoch_with_the_lease, HIGHEST),
    (
        "R11",
        Epoch,
        "first_generation",
        property(number_generations_anew),
        case(epochs.test_generations_of_groups_never_come_again_even_if_the_clock_goes_back),
    ),
    ("R23", ParkedRequests, "fail_all", let_parked_requests_wait_on, DEMOTED),
    (
        "R28",
        BrokerSession,
        "submit",
        keep_to_the_first_leadership,
        case(leads.test_a_held_session_is_answered_too_and_stays_held_in_the_next_leadership),
    ),
]


@pytest.mark.parametrize(("number", "owner", "name", "bug", "killer"), PLANTS, ids=[one[0] + one[2] for one in PLANTS])
def test_a_planted_bug_is_caught(
    number: str, owner: Any, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    killer()
