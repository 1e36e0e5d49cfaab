"""The values that cross the store's border: records as folds see them, and what a fold changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from topicmap.queues import SYSTEM_PREFIX

KEYFRAME_TOPIC: Final = f"{SYSTEM_PREFIX}keyframe"
SEAL_TOPIC: Final = f"{SYSTEM_PREFIX}seal"
REMOVED_TOPIC: Final = f"{SYSTEM_PREFIX}removed"
"""The store obeys these records and knows them by their topic; what they say is a fold."""

Bytes = bytes | memoryview


class Stored(NamedTuple):
    """A record of the log, as folds see it. ``frame`` is the whole frame: head, then record. ``messages``: it is the
    first of a number that are alike in all that folds read of them, and stands for them."""

    position: int
    size: int
    topic: str
    queue_id: int
    flag: int
    properties: bytes
    stored_ms: int
    frame: Bytes
    messages: int = 1


class MadeQueue(NamedTuple):
    """A queue of a topic that was made, or of which nothing before ``first`` is given out any more."""

    topic: str
    queue_id: int
    first: int


class Change(NamedTuple):
    """The changes that a record makes: light queues that begin, queues that end, queues of topics that are ``made``
    unless they are there, with their first offsets, and ``events`` that other folds follow."""

    opened: Sequence[str] = ()
    ended: Sequence[str] = ()
    events: Sequence[object] = ()
    made: Sequence[MadeQueue] = ()


NO_CHANGE: Final = Change()


class Removed(NamedTuple):
    """The owner of the log has removed the log before a position, at which a segment begins, by the record at
    ``said_at``. Both are 0 where none says so."""

    before: int = 0
    said_at: int = 0


class Folds(Protocol):
    """Deterministic functions of the log's prefix. The store calls ``apply`` once per record, in order, never
    skipping one. ``changes`` grows whenever other light queues are open than before."""

    changes: int

    @property
    def epoch(self) -> int:
        """The last epoch that began, 0 before the first."""
        ...

    @property
    def removed(self) -> Removed:
        """The removed part of the log."""
        ...

    def apply(self, record: Stored) -> Change:
        """Takes in a system record or a record with the retain flag."""
        ...

    def note_ids(self, producer: bytes, first: int, count: int, stored_ms: int, position: int, step: int) -> None:
        """Takes in messages whose ids count (``FLAG_SEQUENCED``): a number of a producer's, from ``first`` on. The
        first one's frame is at ``position``, the next one's ``step`` bytes behind it; the last one was stored then."""
        ...

    def queues_of(self, topic: str, properties: bytes) -> Sequence[str]:
        """The open light queues that a user's record belongs to at this point of the log."""
        ...

    def topic_queues(self) -> Iterable[tuple[str, int]]:
        """The queues of all topics: also of those of which no message is known."""
        ...

    def floors(self) -> Iterable[tuple[str, int]]:
        """Queues before a certain offset of which nothing is given out, and that offset."""
        ...

    def freeze(self) -> Iterator[bytes]:
        """The whole state as bytes, a piece at a time, as it is at the call: what is applied before the last piece is
        asked for does not show. Each piece takes bounded time; equal states give equal bytes, joined. A call before
        the last piece of an earlier one ends that one."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Replaces the state by that of a snapshot; ``b""`` stands for the state before the first record."""
        ...
