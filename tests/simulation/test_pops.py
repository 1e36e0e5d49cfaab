"""Popped messages whose takers and brokers are killed between pop and acknowledgement.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.messages.choosing import offset_ranges
from broker.service import BrokerService
from broker.shares.fold import Shares
from broker.shares.pop_leases import PopLeases
from broker.shares.pops import PopRequests
from penstock.client.taker import Taker
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.pops import AckPopped, Pop
from penstock.protocol.requests.request import Request
from tests.simulation import pops
from tests.simulation.messaging import scenario
from tests.simulation.running import Run
from tests.simulation.seeds import must_see, seeds, simulated

CATCH_WITHIN = 30
"""A planted bug must be caught by one of so many seeds."""
SEEDS = seeds(2)
SHOWN = {"popped and acknowledged", "popped and returned", "popped to death"}


def run(seed: int, kinds: Sequence[str] = ("kill", "power", "cut")) -> Run:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return simulated(
        seed,
        lambda simulation: scenario(simulation, (pops.Pops,), kinds),
        lambda result: None,
        "test_pops.py -k popped",
    )


@pytest.fixture(autouse=True)
def looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the workload of a run hear what its brokers give out."""
    init, give = pops.Pops.__init__, PopRequests._give
    now: list[pops.Pops] = []

    def begin(self: pops.Pops, *given: Any) -> None:
        init(self, *given)
        now[:] = [self]

    def looked(self: PopRequests, request: Pop, leases: PopLeases, first: int, pulled: Pulled, *given: Any) -> None:
        for at, end in offset_ranges(pulled, first):
            now[0].given(self._settings.name, request.queue, at, end)
        give(self, request, leases, first, pulled, *given)

    monkeypatch.setattr(pops.Pops, "__init__", begin)
    monkeypatch.setattr(PopRequests, "_give", looked)


@pytest.mark.slow
def test_what_is_popped_is_acknowledged_or_a_dead_letter_whoever_dies() -> None:
    shown: Counter[str] = Counter()
    for seed in SEEDS:
        shown += run(seed).result.events
    assert shown.keys() >= SHOWN, f"never seen: {SHOWN - shown.keys()}"


def answer_for_an_acknowledgement_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: BrokerService, request: Request, now: float, now_ms: int) -> Outcome:
        outcome = handle(self, request, now, now_ms)
        return Now(outcome.result) if isinstance(request, AckPopped) and isinstance(outcome, AfterQuorum) else outcome

    handle = BrokerService.handle
    patch.setattr(BrokerService, "handle", hasty)


def settle_what_is_leased(patch: pytest.MonkeyPatch) -> None:
    def lease(self: PopLeases, first: int, end: int, *given: Any) -> None:
        sound(self, first, end, *given)
        self.pass_over(first, end)

    sound = PopLeases.lease
    patch.setattr(PopLeases, "lease", lease)


def forget_ranges_behind_the_floor(patch: pytest.MonkeyPatch) -> None:
    def restore(self: Shares, snapshot: Any) -> None:
        sound(self, snapshot)
        for share in self.names:
            settled = self.get(share)
            if settled is not None and settled.ends:
                settled.floor = settled.ends[-1]
                settled.starts.clear()
                settled.ends.clear()

    sound = Shares.restore
    patch.setattr(Shares, "restore", restore)


def forget_what_was_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Taker, "not_told", lambda self, popping, request, error: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (answer_for_an_acknowledgement_before_it_is_durable, ("power",)),
        (settle_what_is_leased, ("kill",)),
        (forget_ranges_behind_the_floor, ("kill",)),
        (forget_what_was_not_told, ("kill",)),
    ],
)
def test_a_planted_bug_is_caught(plant: Any, kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    must_see(plant, lambda seed: run(seed, kinds), CATCH_WITHIN)
