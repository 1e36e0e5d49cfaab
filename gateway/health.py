"""Health of a gateway: a broker answers, the listeners accept, and the gateway is neither drained nor held.

Each known broker is asked every few seconds; one that does not answer in time counts as away. A gateway is ready while
the home of sessions answers, because without it no client gets in; work for other brokers waits. The log has one line
when a server is lost and one when it is back. Nothing here waits: answers come by completion, time with ``tick``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.brokers import Broker, Brokers
from gateway.connections.drain import Drain
from gateway.publishing.upstream import Upstream
from gateway.sessions.store import SessionStore
from penstock.errors import PenstockError
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.servers import Ping, ServerInfo

PING_S: Final = 5.0
AWAY_S: Final = 3 * PING_S

_log = logging.getLogger(__name__)


def _nobody(now_ms: int) -> None:
    """No clock is to know the time at a broker."""


class Health:
    """The health of one gateway. ``trouble``: what keeps its listeners from accepting, empty if nothing does.
    ``on_time``: gets the time of a broker that has answered."""

    def __init__(
        self,
        brokers: Brokers,
        home: SessionStore,
        upstream: Upstream,
        drain: Drain,
        trouble: Callable[[], str],
        now: float,
        on_time: Callable[[int], None] = _nobody,
    ) -> None:
        self._on_time = on_time
        self._brokers = brokers
        self._home = home
        self._upstream = upstream
        self._drain = drain
        self._trouble = trouble
        self._now = now
        self._due = now
        self._asked: dict[Broker, None] = {}
        self._heard: dict[Broker, float] = {}
        self._errors: dict[Broker, str] = {}
        self._lost_at: dict[str, float] = {}

    @property
    def brokers_away(self) -> int:
        """The number of known brokers that do not answer."""
        return sum(self._is_away(broker) for broker in self._brokers.known)

    def tick(self, now: float) -> None:
        """Asks the brokers when it is time; to be called about twice a second."""
        self._now = now
        self._tell("name servers", self._brokers.unnamed)
        for broker in self._brokers.known:
            self._tell(f"broker {broker.name}", self._why_away(broker))
        self._tell("the home of sessions", self._why_homeless(), "not found")
        if now < self._due:
            return
        self._due = now + PING_S
        for broker in self._brokers.known:
            self._heard.setdefault(broker, now)
            if broker not in self._asked:
                self._asked[broker] = None
                broker.submit(Ping(), partial(self._answered, broker))

    def _answered(self, broker: Broker, result: Result) -> None:
        del self._asked[broker]
        if isinstance(result, PenstockError):
            self._errors[broker] = str(result)
        else:
            self._errors.pop(broker, None)
            self._heard[broker] = self._now
            if isinstance(result, ServerInfo) and result.now_ms:
                self._on_time(result.now_ms)

    def _tell(self, who: str, why_away: str, is_what: str = "lost") -> None:
        """Logs that a server is lost, or back. ``why_away``: empty for one that answers."""
        if bool(why_away) == (who in self._lost_at):
            return
        if why_away:
            self._lost_at[who] = self._now
            _log.warning("%s %s: %s", who, is_what, why_away)
        else:
            _log.warning("%s back after %.0f s", who, self._now - self._lost_at.pop(who))

    def _is_away(self, broker: Broker) -> bool:
        return bool(self._why_away(broker))

    def _why_away(self, broker: Broker) -> str:
        is_silent = self._now - self._heard.get(broker, self._now) > AWAY_S
        return self._errors.get(broker) or (f"silent for more than {AWAY_S:.0f} s" if is_silent else "")

    def _why_homeless(self) -> str:
        """Why the home of sessions is unknown although there are brokers."""
        is_told_of = self._brokers.unnamed or self.brokers_away == len(self._brokers.known)  # by another line
        return "" if is_told_of else self._home.trouble

    def _home_broker(self) -> Broker | None:
        """The one where sessions are at home, once that is known."""
        return next((one for one in self._brokers.known if one.name == self._home.name), None)

    def reasons(self) -> list[str]:
        """The reasons why it is not ready; empty if it is."""
        reasons = []
        known = self._brokers.known
        if not known:
            reasons.append("no broker is known: no name server has named one yet")
        elif all([self._is_away(broker) for broker in known]):
            why = next(iter(self._errors.values()), "") or self._why_away(known[0])
            reasons.append(f"no broker answers ({', '.join([broker.address for broker in known])}): {why}")
        elif (home := self._home_broker()) is not None and (why := self._why_away(home)):
            reasons.append(f"no client gets in, for {home.name}, where sessions are at home, is away: {why}")
        elif homeless := self._why_homeless():
            reasons.append(f"no client gets in, for the home of sessions is not found: {homeless}")
        trouble = self._trouble()
        if trouble:
            reasons.append(f"the listener does not accept: {trouble}")
        if self._upstream.is_held:
            reasons.append("this gateway may have lost sessions, and stores nothing until their home has answered")
        if self._drain.is_on:
            reasons.append("this gateway is being drained")
        elif self._drain.has_moved:
            reasons.append("this gateway has moved and refuses all clients")
        return reasons
