"""Clients that leave filters and shares as connections, gateways, links and the broker are lost: what was on its way.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.delivery.session_holds import SessionHolds
from gateway.delivery.share_feed import ShareFeed
from gateway.messages.envelope import Arrival
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Session
from gateway.sessions.session_state import encode_flow
from tests.simulation.leaving import HardLeaving, Leaving, check_leaving
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 300
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(14)


def run(seed: int, kind: type[Leaving] = Leaving) -> Leaving:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(kind(seed), check_leaving, seed, "test_leaving.py")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_on_its_way_to_whoever_leaves_comes_to_it(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", SEEDS[: (len(SEEDS) + 2) // 3])
def test_it_does_where_the_broker_has_a_hard_time(seed: int) -> None:
    run(seed, HardLeaving)


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run(3).digest() == run(3).digest() != run(4).digest()


# ---------------------------------------------------------------- planted bugs: the bench must see them


def close_before_that_is_saved(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: SessionHolds, session: Session, lasting: Lasting, filter: str) -> None:
        if filter in lasting.held:
            self._leases.close(lasting, [filter])
        let_go(self, session, lasting, filter)

    let_go = SessionHolds._let_go
    patch.setattr(SessionHolds, "_let_go", hasty)


def leave_what_is_on_its_way_in_the_queue_that_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arrival, "in_its_topic", lambda self: self)


def never_say_what_is_still_to_be_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gateway.sessions.saver.encode_flow", lambda flow: encode_flow(flow._replace(closing=())))


def settle_what_nobody_has_heard_to_be_saved(patch: pytest.MonkeyPatch) -> None:
    def careless(self: ShareFeed, offsets: list[int]) -> None:
        for offset in offsets:
            self.settle(offset)

    patch.setattr(ShareFeed, "give_back", careless)


@pytest.mark.parametrize(
    "plant",
    [
        close_before_that_is_saved,
        leave_what_is_on_its_way_in_the_queue_that_goes,
        never_say_what_is_still_to_be_closed,
        settle_what_nobody_has_heard_to_be_saved,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
