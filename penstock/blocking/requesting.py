"""Requests that wait for their reply, for programs without an event loop. As penstock/client/requesting.py.

It has connections of its own: a long poll stays open at each broker from one request to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.blocking.exchange import Exchange
from penstock.blocking.routes import Routes
from penstock.client.credentials import Credentials
from penstock.client.replies import KEEP_S, LEASE_S, POLL_S, Place, Waiting, named, opened_at, replies_in
from penstock.client.retry import BackOff
from penstock.errors import PenstockError, TimedOut
from penstock.protocol.message import Message
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pull, Pulled
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.routes import BrokerRoute
from penstock.world import Clock, Rng


class _Source:
    """A broker from which replies come. ``place``: where, once its queue is open; ``is_asked``: a pull is open."""

    def __init__(self, route: BrokerRoute) -> None:
        self.route = route
        self.place: Place | None = None
        self.is_asked = False
        self.kept_at = 0.0
        self.not_before = 0.0
        self.attempt = 0


class Requests:
    """The requests of a producer that wait, one at a time."""

    def __init__(
        self, servers: str | Sequence[str], timeout_s: float, clock: Clock, rng: Rng, credentials: Credentials
    ) -> None:
        self._routes = Routes(servers, timeout_s, credentials)
        self._clock = clock
        self._rng = rng
        self._name, self._owner = named(rng)
        self._waiting: Waiting[bool] = Waiting(rng)
        self._sources: dict[str, _Source] = {}
        self._exchange = Exchange()
        self._back_off = BackOff()

    def request(self, message: Message, limit_s: float, send: Callable[[Message, float], object]) -> ReceivedMessage:
        """Sends a request and returns its reply. Raises ``TimedOut``, and as ``send``."""
        deadline = self._clock.monotonic() + limit_s
        correlation = self._waiting.begin(True)
        reply: ReceivedMessage | None = None
        try:
            self._open(deadline)
            asked = self._waiting.message(message, self._name, correlation)
            send(asked, max(0.0, deadline - self._clock.monotonic()))
            while not self._waiting.is_answered(correlation) and (left_s := deadline - self._clock.monotonic()) > 0:
                self._ask(deadline)
                self._exchange.wait(min(left_s, 1.0))
        finally:
            reply = self._waiting.end(correlation)
        if reply is None:
            raise TimedOut(f"no reply within {limit_s:g} s", hint="the request is stored")
        return reply

    def close(self) -> None:
        """Ends the subscription to replies."""
        for source in self._sources.values():
            if source.place is not None:
                with suppress(PenstockError):  # its lease ends
                    self._routes.link(source.route.address).send_only(CloseFilters(self._owner, (self._name,)))
        self._sources.clear()
        self._routes.close()

    def _open(self, deadline: float) -> None:
        """Replies arrive from every broker that can be reached now."""
        for route in self._routes.brokers():
            source = self._sources.setdefault(route.broker, _Source(route))
            source.route = route
            if source.place is None:
                self._open_at(source, deadline)

    def _open_at(self, source: _Source, deadline: float) -> None:
        now = self._clock.monotonic()
        if now < source.not_before:
            return
        try:
            link = self._routes.link(source.route.address)
            request = OpenFilters(self._owner, (self._name,))
            source.place = opened_at(link.ask(request, OpenedFilters, max(0.0, deadline - now)))
            source.kept_at, source.attempt = now, 0
        except PenstockError:
            source.attempt += 1
            source.not_before = now + self._back_off.wait_s(source.attempt, self._rng)

    def _ask(self, deadline: float) -> None:
        """Has a pull open at every broker."""
        for source in self._sources.values():
            if source.is_asked:
                continue
            if source.place is None:
                self._open_at(source, deadline)
            if source.place is None:
                continue
            link, now = self._routes.link(source.route.address), self._clock.monotonic()
            if now - source.kept_at > KEEP_S:
                source.kept_at = now
                self._exchange.submit(link, [(KeepFilters(self._owner, LEASE_S), lambda result: None)])
            queue, offset, log_id = source.place
            source.is_asked = True
            pull = Pull(queue, offset, wait_s=POLL_S, log_id=log_id)
            self._exchange.submit(link, [(pull, partial(self._take, source))])

    def _take(self, source: _Source, result: Result) -> None:
        source.is_asked = False
        if not isinstance(result, Pulled):
            source.place = None  # its queue is opened anew
            return
        if source.place is not None:
            source.place = source.place._replace(offset=result.next)
        for reply in replies_in(result, source.route.broker):
            self._waiting.take(reply)
