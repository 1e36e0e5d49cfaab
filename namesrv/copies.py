"""Nodes that have a copy of a broker's log and can be read: leases by broker and address. Pure.

They register their topics as a leader does. While a broker has a leader, routes name its readers beside it; without
one, its readers answer for it, and nothing of it can be written.

Invariant: no broker has an empty entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.errors import Busy
from penstock.protocol.requests.routes import BrokerHeartbeat, BrokerRoute, RegisterBroker, TopicRoute

READERS_MAX: Final = 16
"""Copies of one broker."""


@dataclass(slots=True)
class Copy:
    """A copy. ``epoch``: of the leader that it follows. ``committed``: up to which position it can be read."""

    version: int
    topics: dict[str, TopicRoute]
    lease_ends: float
    epoch: int
    log_id: str
    committed: int
    is_whole: bool

    def beat(self, request: BrokerHeartbeat, lease_ends: float) -> None:
        """Renews the lease, with the topics that have changed."""
        for route in request.topics:
            if route.queues:
                self.topics[route.topic] = route
            else:
                self.topics.pop(route.topic, None)
        if request.topics:
            self.version, self.is_whole = request.version, not request.more
        self.committed, self.lease_ends = request.committed, lease_ends


class Copies:
    """The readers of all brokers."""

    def __init__(self) -> None:
        self._by_broker: dict[str, dict[str, Copy]] = {}
        self._next_end = math.inf  # no lease ends before this

    def __len__(self) -> int:
        return sum(map(len, self._by_broker.values()))

    @property
    def brokers(self) -> Iterable[str]:
        """Names of the brokers that have readers."""
        return self._by_broker.keys()

    def of(self, broker: str) -> Iterable[Copy]:
        """The readers of a broker."""
        return self._by_broker.get(broker, {}).values()

    def get(self, broker: str, address: str) -> Copy | None:
        """The reader at an address."""
        return self._by_broker.get(broker, {}).get(address)

    def register(self, request: RegisterBroker, lease_ends: float) -> None:
        """Puts in a reader and its topics. Raises ``Busy``."""
        of_broker = self._by_broker.get(request.broker, {})
        if request.address not in of_broker and len(of_broker) >= READERS_MAX:
            raise Busy(f"broker {request.broker} has its {READERS_MAX} readers")
        topics = {route.topic: route for route in request.topics}
        self._by_broker.setdefault(request.broker, {})[request.address] = Copy(
            request.version, topics, lease_ends, request.epoch, request.log_id, request.committed, not request.more
        )
        self._next_end = min(self._next_end, lease_ends)

    def beat(self, copy: Copy, request: BrokerHeartbeat, lease_ends: float) -> None:
        """Renews a lease, with the topics that have changed."""
        copy.beat(request, lease_ends)
        self._next_end = min(self._next_end, lease_ends)

    def leave(self, broker: str, address: str) -> None:
        """Forgets the reader at an address, if there is one."""
        of_broker = self._by_broker.get(broker, {})
        of_broker.pop(address, None)
        if not of_broker:
            self._by_broker.pop(broker, None)

    def expire(self, now: float) -> None:
        """Takes out the readers whose leases have ended."""
        if now < self._next_end:
            return
        for broker, of_broker in list(self._by_broker.items()):
            for address in [address for address, one in of_broker.items() if one.lease_ends <= now]:
                self.leave(broker, address)
        left = [one.lease_ends for of_broker in self._by_broker.values() for one in of_broker.values()]
        self._next_end = min(left, default=math.inf)

    # ------------------------------------------------------------ questions

    def addresses(self, broker: str) -> tuple[str, ...]:
        """Addresses of a broker's readers, the one that has the most first."""
        of_broker = self._by_broker.get(broker, {})
        return tuple(sorted(of_broker, key=lambda address: (-of_broker[address].committed, address)))

    def topics(self, broker: str) -> dict[str, TopicRoute]:
        """All topics that the readers of a broker hold."""
        found: dict[str, TopicRoute] = {}
        for address in reversed(self.addresses(broker)):
            found |= self._by_broker[broker][address].topics
        return found

    def tells_still(self, broker: str) -> bool:
        """Whether no reader of a broker has told all its topics yet."""
        return not any(one.is_whole for one in self._by_broker.get(broker, {}).values())

    def route(self, broker: str, topic: str) -> BrokerRoute | None:
        """The route to the readers of a topic whose broker has no leader; with an empty topic to the broker itself."""
        addresses = self.addresses(broker)
        holds = [one for one in addresses if not topic or topic in self._by_broker[broker][one].topics]
        if not holds:
            return None
        queues = self._by_broker[broker][holds[0]].topics[topic].queues if topic else 0
        return BrokerRoute(
            broker, holds[0], queues, False, epoch=max([one.epoch for one in self.of(broker)]), readers=tuple(holds)
        )
