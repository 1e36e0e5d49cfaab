"""Bugs of whole nodes, numbered as in issue 46, each planted and caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from broker.lineage.epoch import Epoch
from broker.net.dispatch import Dispatch
from broker.net.lead import BrokerSession, Lead
from broker.settings import BrokerSettings
from penstock.errors import PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request
from tests.broker.net import test_group as nodes
from tests.broker.sessions import test_requests as sessions

sound_session = BrokerSession.__init__


def generations_without_the_epoch(self: Epoch) -> int:
    return 1 << 61


def no_other_node_may_lead(self: BrokerSettings) -> bool:
    return False


def parked_requests_survive_a_demotion(self: Dispatch, error: PenstockError) -> None:
    self._service = None
    self.close(error)


def remember_the_dispatch(self: BrokerSession, lead: Lead, number: int, ends_rounds: bool) -> None:
    sound_session(self, lead, number, ends_rounds)
    KNOWN[self] = lead.dispatch


def keep_the_old_dispatch(self: BrokerSession, request: Request, on_result: OnResult) -> None:
    KNOWN.setdefault(self, self._lead.dispatch).submit(request, on_result, self._number)


def answer_what_is_true_now_at_once(self: Dispatch) -> None:
    self._confirmed(len(self._after_round))


KNOWN: dict[BrokerSession, Dispatch] = {}


def case(test: Callable[[], None]) -> Callable[[], None]:
    def killer() -> None:
        with pytest.raises((AssertionError, pytest.fail.Exception, trio.TooSlowError, BaseExceptionGroup)):
            test()

    return killer


GENERATIONS = case(nodes.test_generations_of_groups_go_on_above_all_that_an_earlier_leader_gave)
OPENING = case(sessions.test_where_another_node_may_lead_every_session_waits_for_the_group)
PARKED = case(nodes.test_what_is_parked_at_a_leader_is_answered_when_it_steps_down)
IN_PROCESS = case(nodes.test_a_gateway_in_the_process_of_a_node_works_through_its_promotion)
ABOUT_NOW = case(nodes.test_a_leader_that_hears_no_majority_says_nothing_of_what_is_true_now)
PLANTS: list[tuple[str, Any, str, Any, Callable[[], None]]] = [
    ("R11", Epoch, "first_generation", property(generations_without_the_epoch), GENERATIONS),
    ("R12", BrokerSettings, "has_copies", property(no_other_node_may_lead), OPENING),
    ("R23", Dispatch, "step_down", parked_requests_survive_a_demotion, PARKED),
    ("no round", Dispatch, "_ask_round", answer_what_is_true_now_at_once, ABOUT_NOW),
    ("R28", BrokerSession, "submit", keep_the_old_dispatch, IN_PROCESS),
]


@pytest.mark.parametrize(("number", "owner", "name", "bug", "killer"), PLANTS, ids=[one[0] for one in PLANTS])
def test_a_planted_bug_is_caught(
    number: str, owner: Any, name: str, bug: Any, killer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    KNOWN.clear()
    monkeypatch.setattr(BrokerSession, "__init__", remember_the_dispatch)
    monkeypatch.setattr(owner, name, bug)
    killer()
