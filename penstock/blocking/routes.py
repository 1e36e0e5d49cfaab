"""Asks name servers who has a topic, blocking. Several name servers never talk to each other: the first that answers
counts, and a topic that it does not know is asked of the others too.

It keeps one link per name server and no answers: whoever needs a route often keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar, cast

from penstock.addresses import parse_servers
from penstock.blocking.link import TIMEOUT_S, BlockingLink
from penstock.errors import NoRoute, TimedOut, Unavailable
from penstock.requests import BrokerRoute, QueryRoute, QueryTopics, Reply, Request, Route, TopicNames

_R = TypeVar("_R", bound=Reply)


class Routes:
    """What the name servers know; every method asks them anew."""

    def __init__(self, servers: str | Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self.servers = parse_servers(servers)
        self._links = [BlockingLink(address, timeout_s) for address in self.servers]

    def __enter__(self) -> Routes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for link in self._links:
            link.close()

    def topic(self, topic: str) -> tuple[BrokerRoute, ...]:
        """Brokers that hold queues of a topic. Raises ``NoRoute`` or ``Unavailable``."""
        for route in self._answers(QueryRoute(topic), Route):
            if route.brokers:
                return route.brokers
        raise NoRoute(f"no live broker has topic {topic!r}", hint=f"`penstock topic create {topic}` creates it")

    def brokers(self) -> tuple[BrokerRoute, ...]:
        """All live brokers. Raises ``NoRoute`` or ``Unavailable``."""
        for route in self._answers(QueryRoute(""), Route):
            if route.brokers:
                return route.brokers
        raise NoRoute(f"no live broker is registered at {', '.join(self.servers)}")

    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted. Raises ``Unavailable``."""
        return tuple(sorted({name for found in self._answers(QueryTopics(), TopicNames) for name in found.topics}))

    def _answers(self, request: Request, kind: type[_R]) -> Iterator[_R]:
        """The answer of each name server that is there; ``Unavailable`` when none is."""
        failures: list[str] = []
        for link in self._links:
            try:
                reply = link.call(request)
            except (Unavailable, TimedOut) as error:
                failures.append(error.message)
                continue
            yield cast(_R, reply)
        if len(failures) == len(self._links):
            hint = "is a name server running? `penstock up` starts everything"
            raise Unavailable("no name server answers: " + "; ".join(failures), hint=hint)


def bootstrap(servers: str | Sequence[str], timeout_s: float = TIMEOUT_S) -> Routes:
    """Routes from name servers ``"host:port,host:port"``; asks at once, so that a wrong address fails here."""
    routes = Routes(servers, timeout_s)
    try:
        routes.topics()
    except BaseException:
        routes.close()
        raise
    return routes
