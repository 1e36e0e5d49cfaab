"""``python -m namesrv --config FILE``: one name server, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys

import trio

from namesrv import server
from namesrv.server import RunningNamesrv
from namesrv.settings import NamesrvSettings
from penstock.service.service_main import main
from penstock.world import World


async def run(
    settings: NamesrvSettings, world: World, _tell: object, task_status: trio.TaskStatus[RunningNamesrv]
) -> None:
    """The name server, whose start takes no time to speak of."""
    await server.run(settings, world, task_status=task_status)


if __name__ == "__main__":
    sys.exit(main("namesrv", NamesrvSettings, run))
