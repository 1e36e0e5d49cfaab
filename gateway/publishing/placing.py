"""Publications that wait until the broker of their topic is known.

The first message of a topic has it looked up, and created if it does not exist. Meanwhile the message waits, and later
messages of the same client wait behind it (``ClientQueue``), so that the log has them in order, and a will behind them.
``look_again`` repeats failures that may pass (no broker can be reached): messages that need an acknowledgement wait for
that, the others are given up. A device with waiting messages is not read.

A topic without publications for ``IDLE_S``, or that its broker no longer has, is looked up again: it may have been
deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.brokers import Broker, Brokers
from gateway.publishing.broker_batch import BrokerBatch, ClientQueue, NameRoute, TopicLanes, Unplaced
from penstock.errors import AWAY, NoRoute, PenstockError, StorageFull, TimedOut
from penstock.protocol.requests.topics import DescribeTopic

IDLE_S: Final = 300.0
_SILENT: Final = AWAY | {TimedOut.code}
_PASSING: Final = _SILENT | {NoRoute.code}


class Placing:
    """The topics of one gateway, and the publications that wait for them."""

    def __init__(
        self,
        brokers: Brokers,
        lane_of: Callable[[Broker], BrokerBatch],
        place: Callable[[BrokerBatch, Unplaced], None],
        flush: Callable[[], None],
        gave_up: Callable[[int], None],
    ) -> None:
        """``place`` takes a publication whose broker is known, ``flush`` sends the taken ones. ``gave_up`` hears how
        many messages are given up without an answer to a device."""
        self._brokers = brokers
        self._lane_of = lane_of
        self._place = place
        self._flush = flush
        self._gave_up = gave_up
        self._topics: dict[str, TopicLanes] = {}
        self._queues: dict[str, ClientQueue] = {}  # by client id; none is empty
        self._unfound: list[TopicLanes] = []  # to be looked up again
        self._swept_at = 0.0

    def topic(self, name: str) -> TopicLanes:
        """The brokers of a topic, to be looked up when something is published there."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TopicLanes(name)
        return topic

    def forget(self, name: str) -> None:
        """A broker does not have this topic."""
        topic = self._topics.get(name)
        if topic is not None:
            topic.forget()

    def sweep(self, now: float) -> None:
        """Forgets the brokers of topics that were not used for a while."""
        if now - self._swept_at < IDLE_S:
            return
        self._swept_at = now
        for topic in self._topics.values():
            topic.sweep()

    def is_behind(self, client_id: str) -> bool:
        """Whether something of a client waits, so that what it publishes next waits behind it."""
        return client_id in self._queues

    def wait(self, route: NameRoute, publication: Unplaced) -> None:
        """Takes a publication whose topic is not known yet, or that is behind another one of its client."""
        queue = self._queues.get(route.client_id)
        if queue is None:
            queue = self._queues[route.client_id] = ClientQueue(route.client_id)
        queue.items.append((route, publication))
        if publication.device is not None:
            publication.device.hold_reading()
        if route.lane() is None:
            self._wait_for(route.topic, queue)

    def _wait_for(self, topic: TopicLanes, queue: ClientQueue) -> None:
        """Has a queue wait for the brokers of a topic, which is looked up unless it is already."""
        is_asked = len(topic.waiting) > 0
        topic.waiting[queue] = None
        if not is_asked:
            self._find(topic)

    def _find(self, topic: TopicLanes) -> None:
        self._brokers.find(topic.name, partial(self._found, topic), partial(self._ask_to_make, topic))

    @staticmethod
    def _ask_to_make(topic: TopicLanes) -> DescribeTopic | PenstockError:
        """As the first client that may make the topic, of those that wait for it."""
        request: DescribeTopic | PenstockError = DescribeTopic(topic.name, create=True, is_anonymous=True)
        for queue in topic.waiting:
            device = next((one.device for route, one in queue.items if route.topic is topic), None)
            if device is not None:
                request = device.ask_to_make(topic.name)
                if isinstance(request, DescribeTopic):
                    break
        return request

    def _found(self, topic: TopicLanes, found: list[Broker] | PenstockError) -> None:
        if isinstance(found, PenstockError) and not (topic.reserve and found.code in _SILENT):
            self._not_found(topic, found)
            return
        waiting = topic.take_waiting()
        if isinstance(found, PenstockError):  # no name server answers: the brokers may
            topic.lead_to(topic.reserve)
        else:
            topic.lead_to([self._lane_of(broker) for broker in found])
        self._go_on(list(waiting))

    def _go_on(self, queues: list[ClientQueue]) -> None:
        """Places the publications at the heads of these queues."""
        for queue in queues:
            self._advance(queue)
        self._flush()

    def _advance(self, queue: ClientQueue) -> None:
        while queue.items:
            route, publication = queue.items[0]
            lane = route.lane()
            if lane is None:
                self._wait_for(route.topic, queue)  # its brokers may have been forgotten while this stood behind others
                return
            queue.items.popleft()
            if not queue.items:
                del self._queues[queue.client_id]
            if publication.device is not None:
                publication.device.release_reading()
            self._place(lane, publication)

    # ------------------------------------------------------------ what no broker takes

    def _not_found(self, topic: TopicLanes, error: PenstockError) -> None:
        """Handles a failed lookup: after one that may pass, messages that need an acknowledgement stay, the others are
        given up."""
        waiting = topic.take_waiting()
        refused: list[Unplaced] = []
        for queue in waiting:
            left: deque[tuple[NameRoute, Unplaced]] = deque()
            for item in queue.items:
                if item[0].topic is not topic:
                    left.append(item)
                elif _waits(item[1], error.code):
                    left.append(item)
                    topic.waiting[queue] = None
                else:
                    refused.append(item[1])
            self._leave(queue, left)
        if topic.waiting:
            self._unfound.append(topic)
        elif not topic.lanes:  # topics that no broker takes must not fill memory here
            self._topics.pop(topic.name, None)
        for publication in refused:
            self._refuse(publication, error)
        self._go_on(list(waiting))

    def _leave(self, queue: ClientQueue, left: deque[tuple[NameRoute, Unplaced]]) -> None:
        """Only these stay in a queue."""
        if queue.items and not left:
            del self._queues[queue.client_id]
        queue.items = left

    def _refuse(self, publication: Unplaced, error: PenstockError) -> None:
        device = publication.device
        if device is None:
            self._gave_up(1)
        else:
            device.release_reading()
            device.refused(publication.first, publication.mark, error.code, error.message)
            device.answered(publication.run.size)

    def look_again(self) -> None:
        """Looks up again where no broker could be reached. What a closed connection has left there was never
        acknowledged and is given up."""
        unfound, self._unfound = self._unfound, []
        queues = list(dict.fromkeys([queue for topic in unfound for queue in topic.waiting]))
        for queue in queues:
            self._drop_absent(queue, unfound)
        for topic in unfound:
            for queue in list(topic.waiting):
                if all([route.topic is not topic for route, _ in queue.items]):
                    del topic.waiting[queue]
            if topic.waiting:
                self._find(topic)
            else:
                self._topics.pop(topic.name, None)
        self._go_on(queues)

    def drop_absent(self) -> None:
        """Gives up all that waits of connections that are over."""
        queues = list(self._queues.values())
        for queue in queues:
            self._drop_absent(queue, None)
        self._go_on(queues)

    def _drop_absent(self, queue: ClientQueue, topics: list[TopicLanes] | None) -> None:
        """``topics``: only publications that wait for these."""
        left: deque[tuple[NameRoute, Unplaced]] = deque()
        for item in queue.items:
            device = item[1].device
            if device is None or not device.is_over or (topics is not None and item[0].topic not in topics):
                left.append(item)
        self._gave_up(len(queue.items) - len(left))
        self._leave(queue, left)


def _waits(publication: Unplaced, code: int) -> bool:
    """Whether a publication waits for its topic after this error: it is to be acknowledged, and the error may pass."""
    device = publication.device
    if device is None or not publication.mark:
        return False
    return code in _PASSING or (code == StorageFull.code and not device.is_v5)
