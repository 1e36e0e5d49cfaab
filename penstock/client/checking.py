"""Answers brokers' questions about halves of a producer group, on asyncio and on trio.

One watch is parked at each broker; each half goes to the program's listener, a bounded number at once. If a listener
raises, hangs or returns an illegal value, its half waits for the next check.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Final

import anyio

from penstock.client.discovery import Discovery
from penstock.client.halves import (
    CHECKS_MAX,
    WATCH_COUNT,
    WATCH_S,
    HalfMessage,
    Listener,
    check_ended,
    halves_in,
    verdict_of,
)
from penstock.client.retry import BackOff
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import ask
from penstock.errors import InvalidRequest, OutcomeStands, PenstockError
from penstock.protocol.link import Link
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.transactions import (
    UNKNOWN,
    EndHalves,
    HalfOutcome,
    HalvesEnded,
    HalvesToCheck,
    WatchHalves,
)
from penstock.world import Rng

LOOK_S: Final = 10.0
"""Seconds between two looks for new brokers."""

_log = logging.getLogger(__name__)


class Checker:
    """The checks of a producer.

    Args:
        group: whose halves.
        listener: the program's.
        limit_s: how long the listener may take.
        is_open: whether this producer has a half's transaction under way: its own block decides then.
    """

    def __init__(
        self,
        group: str,
        listener: Listener,
        limit_s: float,
        is_open: Callable[[str, int], bool],
        discovery: Discovery,
        tasks: TaskScope,
        rng: Rng,
    ) -> None:
        self._group = group
        self._listener = listener
        self._limit_s = limit_s
        self._is_open = is_open
        self._discovery = discovery
        self._tasks = tasks
        self._rng = rng
        self._back_off = BackOff()
        self._watched: frozenset[BrokerRoute] = frozenset()
        self._at_work = 0
        self._room = anyio.Event()

    async def run(self) -> None:
        """Watches at all brokers, until cancelled."""
        failures = 0
        while True:
            try:
                routes = frozenset(await self._discovery.all_brokers())
                failures = 0
            except PenstockError:
                failures += 1
                await anyio.sleep(self._back_off.wait_s(failures, self._rng))
                continue
            new, self._watched = routes - self._watched, routes
            for route in new:
                self._tasks.start_soon(self._watch, route)
            await anyio.sleep(LOOK_S)

    async def _watch(self, route: BrokerRoute) -> None:
        """Asks a broker for halves to check, for as long as it is there."""
        link, failures = self._discovery.link(route.address), 0
        while route in self._watched:
            while self._at_work >= CHECKS_MAX:
                self._room = anyio.Event()
                await self._room.wait()
            watch = WatchHalves(self._group, WATCH_S, min(WATCH_COUNT, CHECKS_MAX - self._at_work))
            try:
                halves = halves_in(await ask(link, watch, HalvesToCheck), route.broker)
                failures = 0
            except PenstockError as error:
                failures += 1
                if not error.retryable and failures == 1:
                    _log.warning("%s is not asked for halves to check: %s", route.broker, error)
                await anyio.sleep(self._back_off.wait_s(failures, self._rng))
                continue
            for half in halves:
                if not self._is_open(half.broker, half.id):
                    self._at_work += 1
                    self._tasks.start_soon(self._check, link, half)

    async def _check(self, link: Link, half: HalfMessage) -> None:
        try:
            outcome = await self._ask_listener(half)
            if outcome != UNKNOWN:
                end = EndHalves(self._group, (HalfOutcome(half.id, outcome),))
                check_ended(await ask(link, end, HalvesEnded))
        except OutcomeStands as error:
            _log.info("%s", error)  # another producer was sooner
        except PenstockError as error:
            _log.warning("half %d of %s is left to the next check: %s", half.id, half.broker, error)
        finally:
            self._at_work -= 1
            self._room.set()

    async def _ask_listener(self, half: HalfMessage) -> str:
        """Asks the listener. Raises ``InvalidRequest`` for an illegal answer."""
        with anyio.move_on_after(self._limit_s):
            try:
                said: object = self._listener(half)
                return verdict_of(await said if inspect.isawaitable(said) else said)
            except InvalidRequest:
                raise
            except Exception as error:
                raise InvalidRequest(f"the listener raised {error!r}") from error
        raise InvalidRequest(f"the listener did not return within {self._limit_s:g} s")
