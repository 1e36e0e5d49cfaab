"""``python -m namesrv --config FILE``: one name server, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from functools import partial

import trio

from namesrv import server
from namesrv.server import RunningNamesrv
from namesrv.settings import NamesrvSettings
from penstock.service_main import main
from penstock.standing import Standing
from penstock.world import World


async def run(
    settings: NamesrvSettings, world: World, standing: Standing, task_status: trio.TaskStatus[RunningNamesrv]
) -> None:
    """The name server, which tells its figures."""
    async with trio.open_nursery() as nursery:
        names = await nursery.start(partial(server.run, settings, world))
        standing.add(names.figures, names.reasons)
        task_status.started(names)


if __name__ == "__main__":
    sys.exit(main("namesrv", NamesrvSettings, run))
