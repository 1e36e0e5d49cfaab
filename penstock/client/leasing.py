"""The leased messages of a consumer that pops, per queue: those in hand, and those to acknowledge. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.client.positions import Batch, Position
from penstock.client.unfinished import Unfinished
from penstock.protocol.batches import decode_queue
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.pops import Popped, Range
from penstock.protocol.requests.request import Reply

RANGES_MAX: Final = 1_000
"""Maximum number of ranges in one acknowledgement."""


class InHand(Unfinished):
    """Messages of a popped queue that the program has, in any order, and those that it has finished."""

    def __init__(self) -> None:
        super().__init__(0)
        self._open: set[int] = set()
        self._done: list[int] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def floor(self) -> int:
        """The end: each message is acknowledged by itself."""
        return self.end

    def take(self, offsets: Iterable[int], after: int) -> None:
        self._open.update(offsets)
        self.end = after

    def finish(self, offset: int) -> None:
        self._open.discard(offset)
        self._done.append(offset)

    def drop(self, offsets: Iterable[int]) -> None:
        """Drops messages, which need no acknowledgement."""
        self._open.difference_update(offsets)

    def open(self) -> tuple[Range, ...]:
        """The messages in hand."""
        return ranges_of(self._open)

    def take_done(self) -> tuple[Range, ...]:
        """The messages to acknowledge; each returned once, unless ``not_told``."""
        done, self._done = self._done, []
        return ranges_of(done)

    def not_told(self, ranges: Iterable[Range]) -> None:
        """The acknowledgement failed: it is tried again."""
        for first, end in ranges:
            self._done.extend(range(first, end))


@dataclass(slots=True, eq=False)
class Popping(Position):
    """A popped queue. ``leased_until``: when the lease of a batch that waits for the program may be over."""

    in_hand: InHand = field(default_factory=InHand)
    leased_until: float = 0.0

    def __post_init__(self) -> None:
        self.unfinished = self.in_hand

    def leave_off(self) -> None:
        """Keeps the messages in hand until they are given back."""

    def advance(self, reply: Reply, batch_max: int) -> list[Batch]:
        """The messages of an answer, with the attempts that their records do not know of."""
        assert isinstance(reply, Popped)
        if not reply.count:
            return []
        messages = decode_queue(reply.count, reply.body, self.queue, reply.checksum)
        if reply.deliveries:
            messages = [message.delivered(reply.deliveries) for message in messages]
        return [Batch(self, self.version, messages, reply.next, True)]


def ranges_of(offsets: Iterable[int]) -> tuple[Range, ...]:
    """Neighbours together, in order."""
    found: list[Range] = []
    first = end = -1
    for offset in sorted(offsets):
        if offset != end:
            if end > first:
                found.append(Range(first, end))
            first = offset
        end = offset + 1
    if end > first:
        found.append(Range(first, end))
    return tuple(found)


def by_queue(messages: Sequence[ReceivedMessage]) -> dict[MessageQueue, list[int]]:
    """Offsets of messages, by their queues."""
    found: dict[MessageQueue, list[int]] = {}
    for message in messages:
        found.setdefault(message.queue, []).append(message.offset)
    return found
