"""A whole cluster under faults, seed by seed.

``PENSTOCK_SEEDS=500`` runs more seeds, ``PENSTOCK_SEED=17`` that one alone; a run takes about half a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

import broker.net.server
from broker.filters.requests import FilterRequests
from broker.kernel.outcomes import AfterQuorum, AfterRound, AfterSync, Now, Outcome
from broker.net.dispatch import Dispatch
from broker.net.flusher import Flusher
from broker.net.lead import Lead
from broker.service import BrokerService
from penstock.guarded_clock import GuardedClock
from penstock.protocol.link import OnResult
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.messages import Append, AppendRuns
from penstock.protocol.requests.request import Request
from penstock.world import Offload
from tests.simulation.cluster import check, digest, scenario
from tests.simulation.running import Run, Simulation
from tests.simulation.seeds import must_see, seeds, simulated

SEEDS = seeds(8)
CATCH_WITHIN = 60
"""A planted bug must be caught by one of so many seeds."""


def run(seed: int, messages: int = 200) -> Run:
    """Runs a seed and checks it; a failure says how to run it again, and what happened."""
    return simulated(seed, lambda simulation: scenario(simulation, messages), check, "test_cluster.py -k acknowledged")


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_made_up_or_out_of_order(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_run_every_time() -> None:
    first, second = run(3), run(3)
    assert (first.digest, first.log, digest(first.result)) == (second.digest, second.log, digest(second.result))
    assert run(4).digest != first.digest


def test_a_failing_seed_says_how_to_run_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(simulation: Simulation, messages: int) -> None:
        raise ValueError("planted")

    monkeypatch.setitem(globals(), "scenario", fails)
    with pytest.raises(ValueError, match="planted") as caught:
        run(17)
    assert "PENSTOCK_SEED=17 .venv/bin/pytest tests/simulation/test_cluster.py" in caught.value.__notes__[0]


# ---------------------------------------------------------------- planted bugs: the bench must see them


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    handle = BrokerService.handle

    def hasty(self: BrokerService, request: Request, now: float, now_ms: int) -> Outcome:
        outcome = handle(self, request, now, now_ms)
        return (
            Now(outcome.result)
            if isinstance(request, (Append, AppendRuns, GivenRuns)) and isinstance(outcome, AfterSync | AfterQuorum)
            else outcome
        )

    patch.setattr(BrokerService, "handle", hasty)


def take_the_sync_point_after_the_sync(patch: pytest.MonkeyPatch) -> None:
    async def late(self: Flusher, lead: Lead, offload: Offload) -> None:
        while True:
            await self._needed.wait()
            self._is_needed = False
            self._needed = trio.Event()
            self._store.sync_point()
            await offload(self._store.sync)
            point = self._store.written
            self._store.mark_durable(point)
            self.commit(lead)
            self.need(lead.dispatch.waits_for_disk, is_whole=False)

    patch.setattr(Flusher, "run", late)


def answer_for_a_filter_before_its_record_is_durable(patch: pytest.MonkeyPatch) -> None:
    open_ = FilterRequests.open
    patch.setattr(FilterRequests, "open", lambda self, *given: Now(open_(self, *given).result))  # type: ignore[union-attr]


def forget_to_wake_waiting_requests_and_their_deadlines(patch: pytest.MonkeyPatch) -> None:
    def parks_for_ever(self: Dispatch, request: Request, on_result: OnResult, session: int) -> None:
        assert self._service is not None
        outcome = self._service.handle(request, self._clock.monotonic(), self._clock.wall_ms())
        if isinstance(outcome, Now | AfterRound):
            on_result(outcome.result)
        elif isinstance(outcome, AfterSync | AfterQuorum) and not self._after_sync:  # the next one waits for ever, too
            self._after_sync.append((outcome.point, 0, outcome.result, on_result, 0.0))

    patch.setattr(Dispatch, "submit", parks_for_ever)


def believe_every_reading_of_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GuardedClock, "wall_ms", lambda self: self._clock.wall_ms())


def forget_the_time_over_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker.net.server, "read_times", lambda disk: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        acknowledge_before_the_sync,
        take_the_sync_point_after_the_sync,
        answer_for_a_filter_before_its_record_is_durable,
        forget_to_wake_waiting_requests_and_their_deadlines,
        believe_every_reading_of_the_clock,
        forget_the_time_over_a_restart,
    ],
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # Without wakers each message waits for its deadline.
    messages = 30 if plant is forget_to_wake_waiting_requests_and_their_deadlines else 300
    must_see(plant, lambda seed: run(seed, messages=messages), CATCH_WITHIN)
