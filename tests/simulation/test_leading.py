"""A cluster whose broker loses the lead of its log and gets it back, again and again, without a restart."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

import broker.net.server
from broker.net.running import RunningBroker
from penstock.errors import Unavailable
from tests.simulation.cluster import Cluster, History, Options, check
from tests.simulation.running import Simulation, simulate
from tests.simulation.seeds import seeds

SEEDS = seeds(6)


class Deposed(Cluster):
    """A cluster with no other fault than that its broker is deposed."""

    def __init__(self, simulation: Simulation, options: Options) -> None:
        super().__init__(simulation, options)
        self.running: list[RunningBroker] = []
        self.epochs: list[int] = []

    async def serve(self, *args: Any, task_status: trio.TaskStatus[RunningBroker], **named: Any) -> None:
        """Runs the broker; remembers what runs."""
        async with trio.open_nursery() as nursery:
            running = await nursery.start(lambda task_status: SERVE(*args, task_status=task_status, **named))
            self.running.append(running)
            task_status.started(running)

    async def trouble(self) -> None:
        rng = self.sim.rng("depositions")
        for _ in range(rng.randint(2, 6)):
            await trio.sleep(rng.uniform(0.0, 0.7))
            await self.moments.just_after(rng.choice(["pwrite", "acknowledged", "opened", "delivered"]))
            lead = self.running[-1].lead
            assert lead.service is not None
            self.epochs.append(lead.service._epoch.number)
            lead.step_down(Unavailable("deposed"))
            assert not lead.dispatch.parked
            assert not lead.dispatch.waits_for_disk
            self.sim.say("the broker does not lead")
            await trio.sleep(rng.uniform(0.0, 2.0))
            lead.lead()
            self.sim.say("the broker leads again")


SERVE = broker.net.server.run


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_made_up_when_the_lead_changes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters: list[Deposed] = []

    async def scenario(simulation: Simulation) -> History:
        options = Options.drawn(simulation.rng("options"), 200)
        clusters.append(Deposed(simulation, options))
        monkeypatch.setattr(broker.net.server, "run", clusters[0].serve)
        logging.disable(logging.CRITICAL)
        try:
            return await clusters[0].run()
        finally:
            logging.disable(logging.NOTSET)

    check(simulate(seed, scenario).result)
    [cluster] = clusters
    assert len(cluster.running) == 1, "it is one process"
    assert cluster.epochs == sorted(set(cluster.epochs))
    assert len(cluster.epochs) >= 2
