"""``python -m gateway --config FILE``: one gateway process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys

import trio

from gateway.server import RunningGateway
from gateway.server import run as serve
from gateway.settings import GatewaySettings
from penstock.lasting_links import lasting_links
from penstock.service_main import main
from penstock.world import World


async def run(settings: GatewaySettings, world: World, task_status: trio.TaskStatus[RunningGateway]) -> None:
    """The gateway on wire links, which outlive its goodbye."""
    async with lasting_links() as links:
        await serve(settings, world, links, task_status=task_status)


if __name__ == "__main__":
    sys.exit(main("gateway", GatewaySettings, run))
