"""Tasks that belong to an object which users enter with ``async with``.

A task group of anyio wraps what the block raises into an exception group; this one ends its tasks with the block and
lets the block's own error pass as it is. One task enters and leaves it, and scopes are left in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

_Ts = TypeVarTuple("_Ts")


class TaskScope:
    """Background tasks that live until ``close``."""

    _group: TaskGroup  # made by ``open``: only then is there an event loop

    async def open(self) -> None:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()

    def start_soon(self, work: Callable[[*_Ts], Coroutine[Any, Any, Any]], /, *args: *_Ts) -> None:
        self._group.start_soon(work, *args)

    async def close(self) -> None:
        """Cancels the tasks and waits until they have ended. A task's own failure is raised here, one as itself."""
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
