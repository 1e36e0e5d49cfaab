"""``python -m gateway --config FILE``: one gateway process, until SIGTERM or Ctrl-C; SIGUSR1 drains it, SIGHUP has
it read its files again."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys
from functools import partial
from pathlib import Path

import trio

from gateway.server import RunningGateway, obey
from gateway.server import run as serve
from gateway.settings import GatewaySettings
from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.service.cluster_secret import read_secret
from penstock.service.service_main import main, operator_signals
from penstock.world import World


async def run(
    settings: GatewaySettings, world: World, _tell: object, task_status: trio.TaskStatus[RunningGateway]
) -> None:
    """The gateway on wire links, which outlive its goodbye."""
    key = read_secret(Path(settings.cluster_secret_file)) if settings.cluster_secret_file else None
    who = service_credentials(key, settings.name or "gateway", settings.peers_tls_ca)
    with trio.open_signal_receiver(*operator_signals()) as signals:
        async with lasting_links(credentials=who) as links, trio.open_nursery() as nursery:
            gateway = await nursery.start(partial(serve, settings, world, links))
            nursery.start_soon(obey, gateway, signals)
            task_status.started(gateway)


if __name__ == "__main__":
    sys.exit(main("gateway", GatewaySettings, run))
