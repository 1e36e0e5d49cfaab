"""Wire links that outlive the cancellation of the block that uses them, so that a client can still leave its groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from penstock.client.credentials import NO_CREDENTIALS, Credentials
from penstock.client.wire_link import WireLinks as WireLinks
from penstock.world import Clock, Rng


@asynccontextmanager
async def lasting_links(
    clock: Clock | None = None,
    rng: Rng | None = None,
    credentials: Credentials = NO_CREDENTIALS,
    on_lost: Callable[[str], None] | None = None,
) -> AsyncIterator[WireLinks]:
    """Links that work until the block has ended, whatever ends it. The block itself is cancelled as usual; what it
    still does over the links in a ``finally`` must have a bound and a shield of its own. ``clock`` and ``rng`` are
    the links' own, for back-off. ``credentials``: of the service. ``on_lost``: told the address of a connection that
    has ended."""
    async with lasting_tasks() as tasks:
        yield WireLinks(tasks, clock=clock, rng=rng, credentials=credentials, on_lost=on_lost)


@asynccontextmanager
async def lasting_tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks run until the block has ended, whatever ends it. An error of theirs ends the block."""
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        tasks = await nursery.start(_keep, done)
        try:
            yield tasks
        finally:
            done.set()


async def _keep(done: trio.Event, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as tasks:
        task_status.started(tasks)
        await trio.lowlevel.checkpoint_if_cancelled()  # a block that ends before it begins has no goodbye to say
        tasks.cancel_scope.shield = True
        await done.wait()
        tasks.cancel_scope.cancel()
