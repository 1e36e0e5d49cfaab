"""The queues of a topic that a reader reads, and where it begins in those that appear later. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.client.arguments import Beginning
from penstock.client.subscription import CLOCKS_APART_MS
from penstock.errors import InvalidRequest, QueueNotFound
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.routes import BrokerRoute

Queues = Iterable[int] | Iterable[MessageQueue] | None
"""Numbers of queues, at every broker; certain queues; or all."""

_HINT: Final = "queues=[0, 3] are these of every broker, queues=[MessageQueue(...)] certain ones"


class ChosenQueues:
    """Queues that a program has named. Raises ``InvalidRequest`` for those of another topic."""

    def __init__(self, queues: Queues, topic: str) -> None:
        self._numbers: frozenset[int] | None = None
        self._queues: frozenset[MessageQueue] | None = None
        if queues is None:
            return
        if isinstance(queues, MessageQueue | str | bytes) or not isinstance(queues, Iterable):
            raise InvalidRequest(f"queues are numbers or MessageQueues, not {queues!r:.100}", hint=_HINT)
        given = list(queues)
        named = [one for one in given if isinstance(one, MessageQueue)]
        numbers = [one for one in given if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
        if len(given) not in (len(named), len(numbers)):
            raise InvalidRequest(f"queues are numbers from 0 on, or MessageQueues, not {given!r:.100}", hint=_HINT)
        if named:
            self._queues = frozenset(named)
        else:
            self._numbers = frozenset(numbers)
        for queue in named:
            if queue.topic != topic:
                raise InvalidRequest(f"{queue} is no queue of topic {topic}")

    def __contains__(self, queue: MessageQueue) -> bool:
        if self._queues is not None:
            return queue in self._queues
        return self._numbers is None or queue.number in self._numbers

    def at(self, route: BrokerRoute, topic: str) -> list[MessageQueue]:
        """The queues to read at a broker, also those that are not there."""
        numbers = set(range(route.queues)) if self._numbers is None else self._numbers
        all_queues = self._queues or [MessageQueue(route.broker, topic, number) for number in numbers]
        return sorted(queue for queue in all_queues if queue.broker == route.broker)

    def check_found(self, routes: Iterable[BrokerRoute]) -> None:
        """Raises ``QueueNotFound`` where a queue is named at a broker that does not have the topic."""
        brokers = {route.broker for route in routes}
        for queue in sorted(self._queues or ()):
            if queue.broker not in brokers:
                raise QueueNotFound(
                    f"{queue} is not there", hint=f"brokers with the topic: {', '.join(sorted(brokers))}"
                )


def later_start(start: Beginning, opened_ms: int) -> Beginning:
    """The beginning in a queue that was found after the reader was opened: at the messages that are new to it."""
    return max(0, opened_ms - CLOCKS_APART_MS) if start == "latest" else start
