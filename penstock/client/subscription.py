"""Which topics a consumer reads, and where it begins in each of them. Pure.

Topics are named, or all that match a pattern, also those that are made later. The consumer waits for a topic that does
not exist yet; messages that are stored in it from then on count as new, also if the consumer finds the topic a moment
later. The group's retry topic is read wherever the others are, and where it is left alone, from its first message on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.client.arguments import Beginning, Start, beginning_of
from penstock.errors import InvalidRequest, NoRoute
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.protocol.topic_names import topics_of
from topicmap.queues import is_own_topic, readable

_log = logging.getLogger(__name__)

Topics = str | Iterable[str] | re.Pattern[str]
"""One topic, several, or a pattern of their whole names."""

LOOK_S: Final = 1.0
"""How often the name servers are asked for a topic that is waited for."""
CLOCKS_APART_MS: Final = 60_000
"""The largest difference between the clocks of consumer and broker when new messages are recognised by their time."""


class Subscription:
    """The topics and messages that a consumer reads.

    Attributes:
        topics: those that are named; none where a pattern chooses.
        pattern: what a topic's whole name must match, as it is stored or as people read it.
        retry_topic: where messages come again that the group gave back; empty for none.
    """

    def __init__(self, topics: Topics, start: Start = "latest", retry_topic: str = "") -> None:
        self.retry_topic = retry_topic
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        if self.pattern is not None and not isinstance(self.pattern.pattern, str):
            raise InvalidRequest("a pattern of topics is one of str, not of bytes")
        self.topics = () if isinstance(topics, re.Pattern) else topics_of(topics)
        self.start: Beginning = beginning_of(start)
        self._routes: dict[str, tuple[BrokerRoute, ...]] = {}
        self._absent: set[str] = set()
        self._retry_routes: tuple[BrokerRoute, ...] = ()
        self._opened_ms = 0
        self._at_open: frozenset[str] | None = None

    def chosen(self, names: Iterable[str]) -> tuple[str, ...]:
        """The topics that the pattern chooses: never the broker's own or the gateways'."""
        pattern = self.pattern
        if pattern is None:
            return self.topics
        users = (one for one in names if not is_own_topic(one) and one not in GATEWAYS_TOPICS)
        return tuple(one for one in users if pattern.fullmatch(one) or pattern.fullmatch(readable(one)))

    def found(self, topic: str, routes: Sequence[BrokerRoute]) -> None:
        """Notes the brokers that have a topic."""
        self._routes[topic] = tuple(routes)
        self._absent.discard(topic)

    def found_retries(self, routes: Sequence[BrokerRoute]) -> None:
        """Notes the brokers with messages that the group gave back."""
        self._retry_routes = tuple(routes)

    def missed(self, topic: str, error: NoRoute) -> None:
        """Notes that no live broker has a topic now. If one had it, the member stays there; else it waits for the
        topic."""
        if topic not in self._routes and topic not in self._absent:
            self._absent.add(topic)
            _log.warning("%s; waiting for it", error.message)

    @property
    def waits(self) -> bool:
        """Whether a topic is waited for, or any that matches the pattern."""
        return bool(self._absent) or not self._routes

    def opened(self, now_ms: int) -> None:
        """The consumer begins now, with what was found until now. Only the first call counts."""
        if self._at_open is None:
            self._at_open, self._opened_ms = frozenset(self._routes), now_ms
            if self.pattern is not None and not self._routes:
                _log.warning("no topic matches %r; waiting for one", self.pattern.pattern)

    def by_broker(self, topics: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
        """The topics to read at each broker, by its name, and the brokers' addresses."""
        here: dict[str, list[str]] = {}
        addresses: dict[str, str] = {}
        for topic in topics:
            for route in self._routes.get(topic, ()):
                here.setdefault(route.broker, []).append(topic)
                addresses[route.broker] = route.address
        if self.retry_topic:
            for route in self._retry_routes:
                here.setdefault(route.broker, [])
                addresses[route.broker] = route.address
            for some in here.values():
                some.append(self.retry_topic)
        return here, addresses

    def start_of(self, topic: str) -> Beginning:
        """The beginning in a topic's queues of which the group never committed an offset."""
        if topic == self.retry_topic:
            return "earliest"
        if self.start != "latest" or self._at_open is None or topic in self._at_open:
            return self.start
        return max(0, self._opened_ms - CLOCKS_APART_MS)
