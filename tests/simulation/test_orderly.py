"""An ordered group under faults, seed by seed: no two holders work at once.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.groups import members
from broker.groups.members import Group, Groups, Member
from penstock.client import membership
from penstock.client.positions import Position
from penstock.client.pulling import Held
from tests.simulation.orderly import check, scenario
from tests.simulation.running import Run
from tests.simulation.seeds import must_see, seeds, simulated

SEEDS = seeds(6)
CATCH_WITHIN = 40


def run(seed: int) -> Run:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return simulated(seed, scenario, check, "test_orderly.py -k holders")


def test_no_two_holders_work_at_once_and_all_is_done_in_order() -> None:
    worked = [run(seed).result.worked for seed in SEEDS]
    if len(SEEDS) > 1:
        assert sum(one.handed_over for one in worked) > 2 * len(SEEDS)
        assert sum(one.counted_on for one in worked) > len(SEEDS) / 2


# ---------------------------------------------------------------- planted bugs: the bench must see them


def two_holders_of_an_ordered_queue_while_the_old_one_works(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: Groups, group: Group, known: Member) -> None:
        for queue in known.held.keys() - set(known.dealt):
            members._release(group, known, queue)

    patch.setattr(Groups, "_take_away", at_once)


def let_go_while_a_handler_is_at_work(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Held) -> None:
        pass

    patch.setattr(Held, "wait_idle", at_once)


def begin_work_after_the_session_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Position, "waits", property(lambda self: False))
    patch.setattr(membership.Member, "_renew", lambda self, sent: self._lease.renew(sent + 1e9))


def deal_at_once_after_a_start(patch: pytest.MonkeyPatch) -> None:
    sound = Groups._begin

    def hasty(self: Groups, *given: Any) -> Group:
        group = sound(self, *given)
        group.awaited_until = 0.0
        return group

    patch.setattr(Groups, "_begin", hasty)


PLANTS: Sequence[Callable[[pytest.MonkeyPatch], None]] = [
    two_holders_of_an_ordered_queue_while_the_old_one_works,
    let_go_while_a_handler_is_at_work,
    begin_work_after_the_session_has_ended,
    deal_at_once_after_a_start,
]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
