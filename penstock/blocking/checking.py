"""Answers brokers' questions about halves of a producer group, from code without an event loop.

Watches stay open at the brokers between calls; ``answer`` processes the questions received, in the caller's thread. If
a listener raises or returns an illegal value, its half waits for the next check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.blocking.exchange import Exchange
from penstock.blocking.routes import Routes
from penstock.client.halves import WATCH_COUNT, BlockingListener, HalfMessage, check_ended, halves_in, verdict_of
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.transactions import (
    UNKNOWN,
    EndHalves,
    HalfOutcome,
    HalvesEnded,
    HalvesToCheck,
    WatchHalves,
)
from penstock.world import Clock

GRACE_S: Final = 1.0
"""Seconds that a broker may take, after its wait has ended, to answer that there is no half."""

_log = logging.getLogger(__name__)


class Checks:
    """The checks of a blocking producer. Args as for ``penstock.client.checking.Checker``."""

    def __init__(
        self,
        group: str,
        listener: BlockingListener,
        is_open: Callable[[str, int], bool],
        routes: Routes,
        clock: Clock,
    ) -> None:
        self._group = group
        self._listener = listener
        self._is_open = is_open
        self._routes = routes
        self._clock = clock
        self._exchange = Exchange()
        self._watched: set[BrokerRoute] = set()
        self._found: list[tuple[str, HalfMessage]] = []

    def answer(self, wait_s: float) -> int:
        """Answers brokers' questions about halves, waits up to ``wait_s`` seconds for the first, and returns their
        number. Raises ``NoRoute`` or ``Unavailable``."""
        deadline = self._clock.monotonic() + wait_s
        for route in self._routes.brokers():
            if route not in self._watched:
                self._watched.add(route)
                watch = WatchHalves(self._group, wait_s, WATCH_COUNT)
                self._exchange.submit(self._routes.link(route.address), [(watch, partial(self._watch_ended, route))])
        while self._watched and not self._found and (left_s := deadline + GRACE_S - self._clock.monotonic()) > 0:
            self._exchange.wait(left_s)
        count = 0
        while self._found:
            address, half = self._found.pop(0)
            if not self._is_open(half.broker, half.id):
                self._check(address, half)
                count += 1
        return count

    def _watch_ended(self, route: BrokerRoute, result: Result) -> None:
        self._watched.discard(route)
        try:
            if isinstance(result, PenstockError):
                raise result
            assert isinstance(result, HalvesToCheck)
            self._found += [(route.address, half) for half in halves_in(result, route.broker)]
        except PenstockError as error:
            _log.warning("%s is not asked for halves to check: %s", route.broker, error)

    def _check(self, address: str, half: HalfMessage) -> None:
        try:
            outcome = self._ask_listener(half)
            if outcome != UNKNOWN:
                end = EndHalves(self._group, (HalfOutcome(half.id, outcome),))
                check_ended(self._routes.link(address).ask(end, HalvesEnded))
        except PenstockError as error:
            _log.warning("half %d of %s is left to the next check: %s", half.id, half.broker, error)

    def _ask_listener(self, half: HalfMessage) -> str:
        try:
            said = self._listener(half)
        except Exception as error:
            raise InvalidRequest(f"the listener raised {error!r}") from error
        return verdict_of(said)
