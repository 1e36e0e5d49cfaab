"""``python -m remoting --config FILE``: one front for RocketMQ's clients, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays to the end; ``main`` begins to collect

import sys
from functools import partial
from pathlib import Path

import trio

from penstock.client.credentials import service_credentials
from penstock.client.lasting_links import lasting_links
from penstock.service.cluster_secret import read_secret
from penstock.service.service_main import main
from penstock.world import World
from remoting.server import RunningFront, refuse_bypass
from remoting.server import run as serve
from remoting.settings import RemotingSettings


async def run(
    settings: RemotingSettings, world: World, _tell: object, task_status: trio.TaskStatus[RunningFront]
) -> None:
    """The front on wire links. Raises ``InvalidConfig`` for one that would lead past the users of its broker."""
    key = read_secret(Path(settings.cluster_secret_file)) if settings.cluster_secret_file else None
    who = service_credentials(key, "remoting", settings.peers_tls_ca, settings.shown)
    if key is not None and not (settings.asks or settings.insecure):
        async with lasting_links(credentials=service_credentials(None, "", settings.peers_tls_ca)) as strangers:
            await refuse_bypass(strangers.link(settings.broker))
    async with lasting_links(credentials=who) as links, trio.open_nursery() as nursery:
        task_status.started(await nursery.start(partial(serve, settings, world, links)))


if __name__ == "__main__":
    sys.exit(main("remoting", RemotingSettings, run))
