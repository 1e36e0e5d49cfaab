"""Numbers of written rows, by which a broker stores each once (docs/decisions/0066). Pure.

A row is known by its write, epoch and partition, and by its place among the rows of that partition that go to the same
topic and broker. To the broker, the rows of one write, partition, topic and broker are a
producer whose numbers count without a gap within an epoch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

SPAN: Final = 1 << 22
"""Rows of an epoch in one volume of numbers; further rows are another producer's."""
EPOCHS: Final = 1 << 26
"""Epochs in one volume: the number of spans that twelve hexadecimal digits hold."""
_PRODUCER_BYTES: Final = 8


class Task(NamedTuple):
    """A task that writes. ``write``: the id of a streaming query, or of a batch write."""

    write: str
    epoch: int
    partition: int


class Numbers:
    """The numbers of the rows of one task.

    Args:
        task: the task that writes the rows.
        is_sorted: whether they are sorted. Numbers differ then, so a batch that was stored unsorted in part is stored
            again as a whole, and no row is taken for another one.
    """

    def __init__(self, task: Task, *, is_sorted: bool = False) -> None:
        self._task = task
        self._order = ("sorted",) if is_sorted else ()
        self._used: dict[tuple[str, str, str], tuple[int, int]] = {}  # volume, and rows in it
        self._prefixes: dict[tuple[tuple[str, str, str], int], bytes] = {}

    def take(self, topic: str, broker: str, layout: str, count: int) -> tuple[bytes, int]:
        """Numbers for the next ``count`` rows of a topic at a broker: the prefix of the digits, and the first number.

        ``layout``: the names of all brokers among which rows were dealt. Where it is another than before, a repeated
        row is stored again rather than taken for one that went elsewhere.
        """
        key = (topic, broker, layout)
        volume, used = self._used.get(key, (0, 0))
        if used + count > SPAN:
            volume, used = volume + 1, 0
        self._used[key] = volume, used + count
        prefix = self._prefixes.get((key, volume))
        if prefix is None:
            prefix = self._prefixes[key, volume] = self._prefix(key, volume)
        return prefix, self._task.epoch % EPOCHS * SPAN + used

    def _prefix(self, key: tuple[str, str, str], volume: int) -> bytes:
        task = self._task
        told = (task.write, task.partition, task.epoch // EPOCHS, *key, volume, *self._order)
        return blake2b(repr(told).encode(), digest_size=_PRODUCER_BYTES).hexdigest().encode() + b"-"
