"""``python -m events --config FILE``: one event bridge, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys
from functools import partial
from pathlib import Path

import trio

from events.server import RunningEvents
from events.server import run as serve
from events.settings import EventsSettings
from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.service.cluster_secret import read_secret
from penstock.service.service_main import main
from penstock.world import World


async def run(
    settings: EventsSettings, world: World, _tell: object, task_status: trio.TaskStatus[RunningEvents]
) -> None:
    """The bridge on wire links, which outlive its goodbye."""
    key = read_secret(Path(settings.cluster_secret_file)) if settings.cluster_secret_file else None
    who = service_credentials(key, "events", settings.peers_tls_ca, settings.shown)
    async with lasting_links(credentials=who) as links, trio.open_nursery() as nursery:
        task_status.started(await nursery.start(partial(serve, settings, world, links)))


if __name__ == "__main__":
    sys.exit(main("events", EventsSettings, run))
