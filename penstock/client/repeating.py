"""Repeats failed calls until a deadline, on asyncio and on trio. As penstock/blocking/repeating.py."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from penstock.client.retry import BackOff, Telling, worth_another_try
from penstock.errors import PenstockError
from penstock.world import Clock, Rng


class Repeating:
    """The repetitions of one client's calls. ``log``: takes a line for a call that is repeated, and why."""

    def __init__(self, timeout_s: float, clock: Clock, rng: Rng, log: logging.Logger) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._rng = rng
        self._log = log
        self._back_off = BackOff()

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeats a call until it succeeds, its error cannot be corrected, or ``timeout_s`` is over."""
        began, attempt = self._clock.monotonic(), 0
        deadline, telling = began + self._timeout_s, Telling(self._log, began)
        while True:
            try:
                await work()
                return
            except PenstockError as error:
                if not worth_another_try(error, self._clock.monotonic(), deadline):
                    raise
                attempt += 1
                wait_s = self._back_off.wait_s(attempt, self._rng)
                telling.note(error, self._clock.monotonic() + wait_s, deadline)
            await anyio.sleep(wait_s)
