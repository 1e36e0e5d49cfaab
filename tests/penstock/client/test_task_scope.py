"""Tasks that end with their block, under asyncio and trio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from penstock.client.task_scope import TaskScope


def test_closing_ends_the_tasks_and_leaves_the_blocks_error_as_it_is(run: Callable[..., Any]) -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("task")

    async def test() -> None:
        scope = TaskScope()
        await scope.open()
        try:
            scope.start_soon(forever)
            await anyio.sleep(0.001)
            raise KeyError("mine")
        finally:
            await scope.close()

    with pytest.raises(KeyError, match="mine"):
        run(test)
    assert ended == ["task"]


def test_a_task_that_fails_is_raised_as_itself(run: Callable[..., Any]) -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    async def test() -> None:
        scope = TaskScope()
        await scope.open()
        scope.start_soon(fail)
        try:
            await anyio.sleep_forever()
        finally:
            await scope.close()

    with pytest.raises(ValueError, match="a defect"):
        run(test)


def test_cancelling_from_outside_passes_through(run: Callable[..., Any]) -> None:
    async def test() -> bool:
        with anyio.move_on_after(0.01) as limit:
            scope = TaskScope()
            await scope.open()
            try:
                scope.start_soon(anyio.sleep_forever)
                await anyio.sleep_forever()
            finally:
                await scope.close()
        return limit.cancelled_caught

    assert run(test)
