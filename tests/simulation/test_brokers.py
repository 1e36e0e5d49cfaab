"""A broker that joins, dies and comes back, and sessions that end as gateways die: nothing missed, nothing left open.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.filters.fold import Filters
from broker.net.mirror import SessionMirror
from broker.sessions.fold import Sessions
from penstock.protocol.requests.sessions import SessionFiltersPage
from tests.simulation.brokers import TwoBrokers, check_two
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 100
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(10)


def run(seed: int) -> TwoBrokers:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(TwoBrokers(seed), check_two, seed, "test_brokers.py -k misses")


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_misses_anything_of_a_broker_that_joins_and_nothing_is_left_open(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run(3).digest() == run(3).digest()


# ---------------------------------------------------------------- planted bugs: the bench must see them


def leave_filters_of_ended_sessions_to_whoever_ended_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionMirror, "_close", lambda self, owners, ended: None)


def leave_exchanges_of_ended_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionMirror, "_forget", lambda self, some, ended: None)


def open_nothing_for_those_who_are_away(patch: pytest.MonkeyPatch) -> None:
    listed = SessionMirror._listed
    patch.setattr(SessionMirror, "_listed", lambda self, home, result: listed(self, home, nobody(result)))


def nobody(result: object) -> object:
    return SessionFiltersPage((), 0) if isinstance(result, SessionFiltersPage) else result


def serve_before_the_filters_are_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionMirror, "has_joined", True)


def begin_where_the_gateway_came_to_know_of_the_broker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Filters, "begun", lambda self, owner, filter: 0)


def take_living_sessions_for_ended_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "stands", lambda self, generation: False)


@pytest.mark.parametrize(
    "plant",
    [
        leave_filters_of_ended_sessions_to_whoever_ended_them,
        leave_exchanges_of_ended_sessions,
        open_nothing_for_those_who_are_away,
        serve_before_the_filters_are_open,
        begin_where_the_gateway_came_to_know_of_the_broker,
        take_living_sessions_for_ended_ones,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
