"""``python -m broker --config FILE`` runs one broker."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys

import trio

from broker.net import server
from broker.net.running import RunningBroker, Tell
from broker.settings import BrokerSettings
from penstock.service.service_main import main
from penstock.world import World


async def run(settings: BrokerSettings, world: World, tell: Tell, task_status: trio.TaskStatus[RunningBroker]) -> None:
    """The broker, which tells how far its start has come."""
    await server.run(settings, world, tell=tell, task_status=task_status)


if __name__ == "__main__":
    sys.exit(main("broker", BrokerSettings, run))
