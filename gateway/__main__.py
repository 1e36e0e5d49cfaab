"""``python -m gateway --config FILE``: one gateway process, until SIGTERM or Ctrl-C.

The links live in tasks that are shielded from the stop until the gateway has said goodbye over them.
"""

from __future__ import annotations

import sys

import trio

from gateway.server import RunningGateway
from gateway.server import run as serve
from gateway.settings import GatewaySettings
from penstock.service_main import main
from penstock.wire_link import WireLinks
from penstock.world import World


async def _wires(done: trio.Event, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as wires:
        wires.cancel_scope.shield = True
        task_status.started(wires)
        await done.wait()
        wires.cancel_scope.cancel()


async def run(settings: GatewaySettings, world: World, task_status: trio.TaskStatus[RunningGateway]) -> None:
    """The gateway on wire links."""
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        wires = await nursery.start(_wires, done)
        try:
            await serve(settings, world, WireLinks(wires), task_status=task_status)
        finally:
            done.set()


if __name__ == "__main__":
    sys.exit(main("gateway", GatewaySettings, run))
