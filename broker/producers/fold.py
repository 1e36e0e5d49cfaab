"""Fold of producers: the numbers of each producer's messages in the log, so that a repeated message is stored once.

Messages with ``FLAG_SEQUENCED`` carry their number: their unique id is the producer's name and a number that counts. So
does the record of a sleeping delayed message; facts of halves list the numbers of their messages. A window is a
function of the numbers in the order of the log. Bounded: only the latest producers are known, each for ``KNOWN_MS`` of
the log's time. In memory alone: the places of the latest runs, for answers to retries.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from broker.producers.window import NumbersUsed, Window, window_before, window_of
from broker.store.records import NO_CHANGE, Change, Stored
from broker.store.rows import array_head, packed_pieces

PRODUCERS_MAX: Final = 100_000
KNOWN_MS: Final = 7 * 86_400_000
RECENT_MAX: Final = 16_384
SLICE_ROWS: Final = 2_000


class Stretch(NamedTuple):
    """Messages of a producer whose frames stand one behind the other, each of ``step`` bytes."""

    first: int
    messages: int
    position: int
    step: int


class Producers:
    """The state of all producers, those heard of last at the end."""

    KEY: Final = "producers"
    TOPICS: Final[Sequence[str]] = ()
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, Window] = OrderedDict()
        self._latest = b""
        self._moment = 1  # windows of earlier ones are copied before they change: a snapshot needs them
        self._recent: deque[tuple[bytes, int, int, int, int]] = deque(maxlen=RECENT_MAX)  # producer, then a stretch
        self._places: dict[bytes, list[Stretch]] | None = None

    def __len__(self) -> int:
        return len(self._of)

    def get(self, producer: bytes) -> Window | None:
        """The state of a producer; not to be changed."""
        return self._of.get(producer)

    def note(self, producer: bytes, first: int, count: int, stored_ms: int, position: int, step: int) -> None:
        """The log has messages of a producer: their number, the position of the first, and when the last was stored."""
        window = self._of.get(producer)
        if window is None:
            window = self._of[producer] = window_before(first, self._moment)
        elif window.moment != self._moment:
            window = self._of[producer] = window.copy(self._moment)
        window.stored_ms = stored_ms
        window.note(first, count)
        if producer != self._latest:
            self._latest = producer
            self._of.move_to_end(producer)
            self._forget(stored_ms - KNOWN_MS)
        self._recent.append((producer, first, count, position, step))
        self._places = None

    def _forget(self, before_ms: int) -> None:
        """Forgets the producers that were silent for the longest time, as many as necessary."""
        while True:
            producer = next(iter(self._of))
            if len(self._of) <= PRODUCERS_MAX and self._of[producer].stored_ms >= before_ms:
                return
            del self._of[producer]

    def apply(self, record: Stored) -> Change:
        """Has no records of its own."""
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """Takes in the numbers of messages that a fact holds."""
        for event in change.events:
            if isinstance(event, NumbersUsed):
                for producer, first, count in event.numbers:
                    self.note(producer, first, count, event.stored_ms, event.position, 0)
        return NO_CHANGE

    def recent(self, producer: bytes) -> Sequence[Stretch]:
        """The places of a producer's latest messages, as far as memory has them, in the order of their numbers."""
        if self._places is None:
            self._places = {}
            for one, *stretch in sorted(self._recent):
                self._places.setdefault(one, []).append(Stretch(*stretch))
        return self._places.get(producer, ())

    # ------------------------------------------------------------ snapshots

    def freeze(self) -> Iterator[bytes]:
        rows = iter(list(self._of.items()))
        count = len(self._of)
        self._moment += 1

        def pieces() -> Iterator[bytes]:
            yield array_head(count)
            while some := list(islice(rows, SLICE_ROWS)):
                yield from packed_pieces([[producer, *window.row()] for producer, window in some])

        return pieces()

    def restore(self, snapshot: Sequence[Any] | None) -> None:
        self._moment += 1
        self._of = OrderedDict((producer, window_of(row)) for producer, *row in snapshot or ())
        self._latest = next(reversed(self._of), b"")
        self._recent.clear()
        self._places = None
