"""A broker whose disk is full for a while, fails, and whose clock jumps, under gateways and clients that die too.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from broker.messages.retained import Retained
from broker.store.commit_log import CommitLog
from gateway.publishing.upstream import Appending, Upstream
from tests.simulation.gateways import check
from tests.simulation.hardships import Hardships
from tests.simulation.seeds import checked, must_see, seeds

CATCH_WITHIN = 100
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(10)


def run(seed: int) -> Hardships:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return checked(Hardships(seed), check, seed, "test_hardships.py -k promised")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_promised_holds_on_a_disk_that_fills_and_fails(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run(3).digest() == run(3).digest() != run(4).digest()


# ---------------------------------------------------------------- planted bugs: the bench must see them


def never_take_a_retained_message_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retained, "remove", lambda self, name, position: None)


def take_a_failed_sync_for_a_good_one(patch: pytest.MonkeyPatch) -> None:
    def careless(self: CommitLog) -> None:
        for segment in self._syncing:
            with contextlib.suppress(OSError):
                segment.file.sync()
        self._syncing = []

    patch.setattr(CommitLog, "sync", careless)


def acknowledge_what_the_log_had_no_room_for(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Upstream, batch: Appending, codes: dict[int, int], is_whole: bool = False) -> None:
        self._tell(batch)

    patch.setattr(Upstream, "_partly", hasty)


@pytest.mark.parametrize(
    "plant",
    [
        never_take_a_retained_message_away,
        take_a_failed_sync_for_a_good_one,
        acknowledge_what_the_log_had_no_room_for,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, run, CATCH_WITHIN)
