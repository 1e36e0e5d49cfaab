"""``python -m broker --config FILE`` runs one broker."""

from __future__ import annotations

import sys
from functools import partial

import trio

from broker import server
from broker.server import RunningBroker
from broker.settings import BrokerSettings
from penstock.service_main import main
from penstock.standing import Standing
from penstock.world import World


async def run(
    settings: BrokerSettings, world: World, standing: Standing, task_status: trio.TaskStatus[RunningBroker]
) -> None:
    """The broker, which tells how far its start has come."""
    async with trio.open_nursery() as nursery:
        broker = await nursery.start(partial(server.run, settings, world, tell=standing.begin))
        standing.add(broker.figures, broker.reasons)
        task_status.started(broker)


if __name__ == "__main__":
    sys.exit(main("broker", BrokerSettings, run))
