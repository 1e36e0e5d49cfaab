"""Which messages of a queue a program is at work on, and how far the group may pass. Pure.

Handlers finish messages in any order. The *floor* is the offset of the lowest that is not finished: a commit stores it,
so that nothing is skipped whatever becomes of the program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.client.arguments import check_count
from penstock.protocol.received import ReceivedMessage


class Unfinished:
    """The unfinished messages of one queue.

    Attributes:
        end: behind the last message that was taken.

    Invariant: every offset from ``floor`` on and before ``end`` that is waited for is finished once, later.
    """

    def __init__(self, begun: int) -> None:
        self.end = begun
        self._taken: deque[int] = deque()
        self._finished: set[int] = set()

    def __len__(self) -> int:
        return len(self._taken) - len(self._finished)

    @property
    def floor(self) -> int:
        """The offset before which all messages are finished."""
        return self._taken[0] if self._taken else self.end

    @property
    def span(self) -> int:
        """The distance of the lowest unfinished message from the last one that was taken."""
        return self.end - self.floor

    def take(self, offsets: Iterable[int], after: int) -> None:
        """The program has these messages, the next in their order; nothing waits for others before ``after``."""
        self._taken.extend(offsets)
        self.end = after

    def finish(self, offset: int) -> None:
        """One message is done, or given back."""
        taken, finished = self._taken, self._finished
        finished.add(offset)
        while taken and taken[0] in finished:
            finished.remove(taken.popleft())


@dataclass(frozen=True, slots=True)
class Flow:
    """Limits of a handler's unfinished messages: their number, the bytes of their bodies, and in each queue the offsets
    from the lowest one on. One batch is taken in any case."""

    messages: int = 1000
    bytes: int = 64 * 1024 * 1024
    span: int = 2000

    def __post_init__(self) -> None:
        check_count("messages_max", self.messages)
        check_count("bytes_max", self.bytes)
        check_count("span_max", self.span)

    def fits(
        self, messages: int, bytes: int, more: Sequence[ReceivedMessage], unfinished: Unfinished | None, after: int
    ) -> bool:
        """Whether a batch may be taken. ``messages``, ``bytes``: the unfinished ones of all queues; ``unfinished``: in
        the batch's; ``after``: the offset behind the batch."""
        if not messages:
            return True
        if messages + len(more) > self.messages or bytes + size_of(more) > self.bytes:
            return False
        return not unfinished or after - unfinished.floor <= self.span


def size_of(messages: Sequence[ReceivedMessage]) -> int:
    """Bytes of the bodies of messages, as they are stored."""
    return sum([one.stored_bytes for one in messages])
