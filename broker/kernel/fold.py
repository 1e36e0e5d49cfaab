"""Folds: deterministic functions of the log's prefix, and the registry that feeds them.

A fold takes in the records of its system topics, and users' records with one of its flags. It decides by the record
alone, never by a clock, a random number or the disk: equal prefixes give equal states, and equal states equal bytes.
A fold that depends on another one is a ``Follower``: it receives the ``Change`` of every other fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import msgpack

from broker.store.destinations import Destination, Incoming
from broker.store.level import Level
from broker.store.records import NO_CHANGE, Bytes, Change, Stored
from penstock.errors import TooLarge
from penstock.protocol.message import (
    BODY_BYTES_MAX,
    FLAG_SEQUENCED,
    FRAME_HEAD_BYTES,
    UNIQUE_KEY,
    record_body,
    record_tail,
)
from penstock.protocol.runs import DIGITS, Run
from topicmap.queues import SYSTEM_PREFIX

T = TypeVar("T")
_UNIQUE: Final = UNIQUE_KEY.encode() + b"\x01"


class Fold(Protocol):
    """State that a theme of the broker keeps in the log.

    Attributes:
        KEY: its name in snapshots, for ever.
        TOPICS: the system topics whose records it takes in.
        FLAGS: application flags of users' records that it takes in too.
    """

    @property
    def KEY(self) -> str: ...

    @property
    def TOPICS(self) -> Sequence[str]: ...

    @property
    def FLAGS(self) -> int: ...

    def apply(self, record: Stored) -> Change:
        """Takes in a record, in the order of the log. Tells which light queues begin and end, and what other folds
        should know."""
        ...

    def freeze(self) -> Iterator[bytes]:
        """The state as it is now, as one msgpack value in pieces. The pieces are made later, each in bounded time; what
        is applied meanwhile does not show in them."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Replaces the state by that of a snapshot, unpacked; ``None`` stands for the empty state."""
        ...


class Follower(Protocol):
    """A fold whose state depends on what other folds change."""

    def follow(self, change: Change) -> Change:
        """Takes in what another fold has changed; returns what changes with it."""
        ...


def fact_record(topic: str, body: list[Any], unique_id: bytes = b"") -> Incoming:
    """The system record of a durable fact, ready to append. ``unique_id``: that of the message in it, whose number its
    producer has used with this record. Raises ``TooLarge``."""
    data = cast(bytes, msgpack.packb(body))
    if len(data) > BODY_BYTES_MAX:
        raise TooLarge(f"a record of facts has at most {BODY_BYTES_MAX} bytes, not {len(data)}", hint="ask for less")
    properties = _UNIQUE + unique_id if unique_id else b""
    run = Run(record_tail(topic.encode(), properties), FLAG_SEQUENCED if unique_id else 0, 0, [data])
    run.queue_id = 0
    if unique_id:
        run.number = int(unique_id[-DIGITS:], 16)
    return Incoming(run, Destination(topic, properties, Level.QUORUM, len(_UNIQUE) if unique_id else -1))


def fact_of(record: Stored) -> list[Any]:
    """The body of a durable fact."""
    return fact_in(record.frame)


def fact_in(frame: Bytes) -> list[Any]:
    """The body of the durable fact in a frame."""
    return cast("list[Any]", msgpack.unpackb(record_body(memoryview(frame)[FRAME_HEAD_BYTES:])))


def in_parts(items: Sequence[T], size_of: Callable[[T], int], bytes_max: int) -> Iterator[Sequence[T]]:
    """Neighbours with at most ``bytes_max`` together, or one that has more: what one record of facts holds."""
    first = size = 0
    for at, item in enumerate(items):
        more = size_of(item)
        if at > first and size + more > bytes_max:
            yield items[first:at]
            first, size = at, 0
        size += more
    if items:
        yield items[first:]


def packed(value: Any) -> Iterator[bytes]:
    """The whole of a small state, as ``freeze`` gives it."""
    return iter((cast(bytes, msgpack.packb(value)),))


class FoldRegistry:
    """All folds of a broker as one (satisfies most of ``store.records.Folds``).

    Attributes:
        changes: how often light queues were opened or ended.
    """

    def __init__(self, folds: Sequence[Fold]) -> None:
        """Raises ``ValueError`` where two folds have one key."""
        self._folds: Final = tuple(folds)
        self._by_topic: dict[str, list[Fold]] = {}
        for fold in self._folds:
            for topic in fold.TOPICS:
                self._by_topic.setdefault(topic, []).append(fold)
        self._flagged: Final = tuple(fold for fold in self._folds if fold.FLAGS)
        self._followers: Final = tuple([cast(Follower, one) for one in self._folds if hasattr(one, "follow")])
        if len({fold.KEY for fold in self._folds}) < len(self._folds):
            raise ValueError(f"two folds have one key: {sorted(fold.KEY for fold in self._folds)}")
        self.changes = 0

    def apply(self, record: Stored) -> Change:
        """Hands a record to the folds that take it in; returns which queues begin and end with it."""
        if record.topic.startswith(SYSTEM_PREFIX):
            folds: Sequence[Fold] = self._by_topic.get(record.topic, ())
        else:
            folds = [fold for fold in self._flagged if fold.FLAGS & record.flag]
        all_changes = NO_CHANGE
        for fold in folds:
            change = fold.apply(record)
            if change is not NO_CHANGE:
                all_changes = _joined(all_changes, self.spread(change))
        if all_changes.opened or all_changes.ended:
            self.changes += 1
        return all_changes

    def spread(self, change: Change) -> Change:
        """Gives a change, and each that follows from it, to all followers; returns all of them together."""
        together, unseen = change, [change]
        while unseen:
            seen = unseen.pop(0)
            for fold in self._followers:
                more = fold.follow(seen)
                if more is not NO_CHANGE:
                    unseen.append(more)
                    together = _joined(together, more)
        return together

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return b"".join(self.freeze())

    def freeze(self) -> Iterator[bytes]:
        """The state as it is now, in the pieces of ``snapshot``; they are made later."""
        pieces = [fold.freeze() for fold in self._folds]

        def joined() -> Iterator[bytes]:
            yield cast(bytes, msgpack.Packer().pack_map_header(len(pieces)))
            for fold, some in zip(self._folds, pieces, strict=True):
                yield cast(bytes, msgpack.packb(fold.KEY))
                yield from some

        return joined()

    def restore(self, snapshot: bytes) -> None:
        """Takes the state of a snapshot; ``b""`` is the state before the first record.

        A fold that an older broker did not have begins empty; one that only a newer broker has is passed over.
        """
        self.changes += 1
        parts = msgpack.unpackb(snapshot) if snapshot else {}
        for fold in self._folds:
            fold.restore(parts.get(fold.KEY))


def _joined(first: Change, second: Change) -> Change:
    if first is NO_CHANGE:
        return second
    return Change(
        (*first.opened, *second.opened),
        (*first.ended, *second.ended),
        (*first.events, *second.events),
        (*first.made, *second.made),
    )
