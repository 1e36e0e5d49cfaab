"""``python -m gateway --config FILE``: one gateway process, until SIGTERM or Ctrl-C; SIGUSR1 drains it, SIGHUP has
it read its files again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from gateway.server import RunningGateway, obey
from gateway.server import run as serve
from gateway.settings import GatewaySettings
from penstock import footprint
from penstock.lasting_links import lasting_links
from penstock.service_main import main, operator_signals
from penstock.world import World


async def run(settings: GatewaySettings, world: World, task_status: trio.TaskStatus[RunningGateway]) -> None:
    """The gateway on wire links, which outlive its goodbye."""
    with trio.open_signal_receiver(*operator_signals()) as signals:
        async with lasting_links() as links, trio.open_nursery() as nursery:
            gateway = await nursery.start(partial(serve, settings, world, links))
            nursery.start_soon(obey, gateway, signals)
            if settings.status_port >= 0:
                from penstock.status import serve_status  # the HTTP server is loaded by who wants it

                where = (settings.status_host, settings.status_port)
                pages = partial(serve_status, *where, partial(_figures, gateway), partial(_reasons, gateway))
                gateway = replace(gateway, status=await nursery.start(pages))
            task_status.started(gateway)


async def _figures(gateway: RunningGateway) -> Mapping[str, float]:
    return {**gateway.figures.read(), **footprint.read()}


async def _reasons(gateway: RunningGateway) -> Sequence[str]:
    return gateway.health.reasons()


if __name__ == "__main__":
    sys.exit(main("gateway", GatewaySettings, run))
