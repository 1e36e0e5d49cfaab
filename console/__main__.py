"""``python -m console --config FILE``: the web console, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys

import trio

from console import server
from console.server import RunningConsole
from console.settings import ConsoleSettings
from penstock.service.service_main import main
from penstock.world import World


async def run(
    settings: ConsoleSettings, world: World, _tell: object, task_status: trio.TaskStatus[RunningConsole]
) -> None:
    """The console, whose start takes no time to speak of."""
    await server.run(settings, world, task_status=task_status)


if __name__ == "__main__":
    sys.exit(main("console", ConsoleSettings, run))
