"""How long tests wait, in real time, for what takes a moment on an idle machine, and how often they ask meanwhile.

Long enough for a machine with ten times more to do than it can: a limit that is reached means that something hangs, and
the error says so. It costs nothing where nothing hangs. A test that asks again without a pause takes the processor from
the process that it waits for.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio

PATIENCE_S: Final = 300
POLL_S: Final = 0.05

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]


def poll(what: str, ask: Callable[[], T], holds: Callable[[T], object] = bool, *, despite: Errors = ()) -> T:
    """Asks each 50 ms until ``holds``; returns that answer.

    ``what``: what is waited for, as the error names it; ``despite``: errors of ``ask`` that are no answer yet.
    """
    until, told = time.monotonic() + PATIENCE_S, None
    while True:
        try:
            if holds(told := ask()):
                return told
        except despite as error:
            told = error
        assert time.monotonic() < until, _in_vain(what, told)
        time.sleep(POLL_S)


async def poll_async(
    what: str, ask: Callable[[], Awaitable[T] | T], holds: Callable[[T], object] = bool, *, despite: Errors = ()
) -> T:
    """The same in an event loop; ``ask`` may be a coroutine function. An answer that never comes is an error too."""
    told: Any = "none"
    with anyio.move_on_after(PATIENCE_S):
        while True:
            try:
                answer = ask()
                told = await answer if inspect.isawaitable(answer) else answer
                if holds(told):
                    return told
            except despite as error:
                told = error
            await anyio.sleep(POLL_S)
    raise AssertionError(_in_vain(what, told))


def _in_vain(what: str, told: object) -> str:
    return f"waited {PATIENCE_S} s for this: {what}; the last answer: {told!r}"
