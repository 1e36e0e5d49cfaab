"""Clients that go as gateways, links and the broker die: what becomes of their wills and sessions.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.kernel.outcomes import AfterQuorum, AfterSync, Now, Outcome
from broker.sessions.requests import SessionRequests
from gateway.connections.wills import Wills
from tests.simulation.ends import Ends, check_ends
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 100
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(10)


def run(seed: int) -> Ends:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(Ends(seed), check_ends, seed, "test_ends.py -k wills")


@pytest.mark.parametrize("seed", SEEDS)
def test_wills_are_published_and_sessions_end_whoever_dies(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run(3).digest() == run(3).digest() != run(4).digest()


# ---------------------------------------------------------------- planted bugs: the bench must see them


def hasty(outcome: Outcome) -> Outcome:
    return Now(outcome.result) if isinstance(outcome, AfterSync | AfterQuorum) else outcome


def give_a_session_before_that_is_durable(patch: pytest.MonkeyPatch) -> None:
    give = SessionRequests._give
    patch.setattr(SessionRequests, "_give", lambda self, *given: hasty(give(self, *given)))


def leave_the_wills_of_dead_gateways(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Wills, "claim", lambda self, client: None)


@pytest.mark.parametrize(
    "plant",
    [
        give_a_session_before_that_is_durable,
        leave_the_wills_of_dead_gateways,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
