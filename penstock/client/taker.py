"""Requests of a consumer that pops: messages, acknowledgements, longer leases. Pure.

The asynchronous and the blocking consumer share it. It keeps the popped queues and makes the requests; the consumer
sends them and reports failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.client.arguments import Start, check_count, check_group_name, check_seconds
from penstock.client.attempts import attempts_of, check_received
from penstock.client.leasing import RANGES_MAX, Popping, by_queue, ranges_of
from penstock.client.positions import Position, chosen_tags, not_read
from penstock.client.subscription import Subscription, Topics
from penstock.client.terms import check_filter
from penstock.errors import InvalidRequest, PenstockError, QueueNotFound
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import AckPopped, ExtendPopped, LeavePopped, Pop, Range, SendPoppedBack
from penstock.world import Clock, Rng
from topicmap.queues import retry_topic

INVISIBLE_S: Final = 60.0
INVISIBLE_S_MAX: Final = 43_200.0
POP_WAIT_S: Final = 15.0
BYTES_MAX: Final = 1 << 20
"""Bodies of one batch, unless its first is larger."""
SPAN_MAX: Final = 1 << 62
"""Messages wait for no other one of their queue."""


class PopTerms(NamedTuple):
    """The arguments of ``PopConsumer``."""

    group: str
    topics: Topics
    start: Start
    tags: str | Iterable[str]
    filter: str
    invisible_s: float
    attempts_max: int
    retry_delays_s: Iterable[float] | None
    batch_max: int


class Taker:
    """A consumer of a group that pops.

    Attributes:
        queues: the queues that it pops.
        batch_max: maximum number of messages per batch.
    """

    def __init__(self, terms: PopTerms, clock: Clock, rng: Rng, *, wait_s: float = POP_WAIT_S) -> None:
        """``wait_s``: seconds that a pop waits for messages. Raises ``InvalidRequest`` and ``InvalidFilter``."""
        check_group_name(terms.group, hint="the group comes first: PopConsumer(group, topics)")
        check_invisible(terms.invisible_s)
        if not terms.invisible_s:
            raise InvalidRequest("invisible_s is more than 0 s: a message is leased for that time")
        check_count("batch_max", terms.batch_max)
        self.group = terms.group
        self.subscription = Subscription(terms.topics, terms.start, retry_topic(terms.group))
        self.batch_max = terms.batch_max
        self.invisible_s = terms.invisible_s
        self.queues: dict[MessageQueue, Popping] = {}
        self._name = f"taker-{rng.getrandbits(64):016x}"
        self._tags = chosen_tags(terms.tags)
        self._filter = check_filter(terms.filter)
        self._attempts = attempts_of(terms.attempts_max, terms.retry_delays_s)
        self._wait_s = wait_s
        self._clock = clock

    # -- messages

    def pull(self, position: Position, queues: int) -> Pop:
        """The request for the next messages of a queue. Their lease begins now at the earliest."""
        assert isinstance(position, Popping)
        position.leased_until = self._clock.monotonic() + self.invisible_s
        return Pop(
            self.group,
            position.queue.name,
            self._name,
            position.begun,
            self.invisible_s,
            self.batch_max,
            BYTES_MAX,
            self._wait_s,
            self._attempts.max,
            self._tags,
            self._filter,
        )

    def popping_of(self, queue: MessageQueue) -> Popping:
        """A queue that is popped. Raises ``QueueNotFound``."""
        if queue not in self.queues:
            raise not_read(queue)
        return self.queues[queue]

    def given(self, messages: object, method: str) -> list[tuple[Popping, list[int]]]:
        """Messages that a program has named, by their queues. Raises ``InvalidRequest`` and ``QueueNotFound``."""
        given = [messages] if isinstance(messages, ReceivedMessage) else messages
        if not isinstance(given, Sequence):
            raise InvalidRequest(f"{method} takes received messages, not {messages!r:.100}")
        for message in given:
            check_received(message, method)
        return [(self.popping_of(queue), offsets) for queue, offsets in by_queue(given).items()]

    # -- acknowledgements

    def finish(self, messages: object) -> None:
        """Marks messages as done. Raises as ``given``."""
        for popping, offsets in self.given(messages, "ack"):
            for offset in offsets:
                popping.in_hand.finish(offset)

    def acknowledgements(self) -> Iterator[tuple[Popping, AckPopped]]:
        """Acknowledgements of finished messages, each once; ``not_told`` repeats those of a failed request."""
        for popping in list(self.queues.values()):
            done = popping.in_hand.take_done()
            for at in range(0, len(done), RANGES_MAX):
                yield popping, AckPopped(self.group, popping.queue.name, done[at : at + RANGES_MAX])

    def not_told(self, popping: Popping, request: AckPopped, error: BaseException) -> PenstockError | None:
        """Takes a failed acknowledgement back; returns the error to raise, ``None`` if the topic was deleted."""
        if isinstance(error, QueueNotFound):
            return None
        popping.in_hand.not_told(request.ranges)
        return error if isinstance(error, PenstockError) else None

    def send_back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> SendPoppedBack:
        """The request that returns a message for a retry. Raises ``QueueNotFound``."""
        self.popping_of(message.queue)
        queue, offset, delay_ms, reason = self._attempts.back(message, after_s, reason)
        return SendPoppedBack(self.group, queue, self._name, offset, delay_ms, self._attempts.max, reason)

    # -- leases

    def extensions(self, popping: Popping, ranges: Sequence[Range], invisible_s: float) -> list[ExtendPopped]:
        """Requests that lease messages for ``invisible_s`` seconds; 0 returns them."""
        name = popping.queue.name
        return [
            ExtendPopped(self.group, name, self._name, tuple(ranges[at : at + RANGES_MAX]), invisible_s)
            for at in range(0, len(ranges), RANGES_MAX)
        ]

    def renewals(
        self, waiting: Iterable[Sequence[ReceivedMessage]], *, in_hand: bool
    ) -> list[tuple[Popping, list[ExtendPopped]]]:
        """Requests that extend the leases of batches that wait for the program, with ``in_hand`` also of those that it
        has."""
        found = []
        held = {batch[0].queue: ranges_of(one.offset for one in batch) for batch in waiting}
        for queue, popping in self.queues.items():
            ranges = held.get(queue, ()) + (popping.in_hand.open() if in_hand else ())
            if ranges:
                if queue in held:
                    popping.leased_until = self._clock.monotonic() + self.invisible_s
                found.append((popping, self.extensions(popping, ranges, self.invisible_s)))
        return found

    def returned(self) -> list[tuple[Popping, list[ExtendPopped]]]:
        """The requests that return all that the program has, so that others get it at once."""
        found = []
        for popping in self.queues.values():
            ranges = popping.in_hand.open()
            popping.in_hand.drop([offset for first, end in ranges for offset in range(first, end)])
            if ranges:
                found.append((popping, self.extensions(popping, ranges, 0.0)))
        return found

    def leave(self) -> LeavePopped:
        """The request that returns also messages whose replies did not arrive."""
        return LeavePopped(self.group, self._name)


def check_invisible(given: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a time for which messages can be leased; 0 returns them."""
    check_seconds("invisible_s", given)
    if given > INVISIBLE_S_MAX:  # type: ignore[operator]  # a number of seconds, as checked
        raise InvalidRequest(f"invisible_s is at most {INVISIBLE_S_MAX:_.0f} s, not {given!r:.50}")
