"""Reads for a pull that selects messages of a queue, by the shorter way.

If the pull names one MQTT filter and it is open, its light queue leads to the matching messages, and no other is read.
Offsets are always those of the topic's queue, also if the filter is closed or opened meanwhile. Pure but for the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.messages.filtering import CHUNK_BYTES, Choice, Selection
from broker.store.message_store import MessageStore
from broker.store.queue_index import LIGHT
from penstock.errors import QueueNotFound
from penstock.protocol.message import ENTRY
from penstock.protocol.requests.messages import Pulled
from topicmap.queues import filter_queue, parse_topic_queue


class _Light(NamedTuple):
    """A light queue, and where in it a pull begins."""

    queue: str
    offset: int


class Choosing:
    """Selected reads of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def read(
        self, queue: str, offset: int, selection: Selection, count_max: int, bytes_max: int, tags: frozenset[int]
    ) -> Pulled:
        """Selected messages of a queue from ``offset`` on, as far as one pull looks. Raises ``QueueNotFound`` and
        ``OffsetOutOfRange``."""
        light = self._light(queue, offset, selection)
        if light is None:
            choice = Choice(selection, count_max, bytes_max)
            found = self._look(queue, offset, choice, tags)
            return choice.pulled(choice.next, found.min, found.end)
        choice = Choice(selection, count_max, bytes_max, parse_topic_queue(queue))
        self._look(light.queue, light.offset, choice, tags)
        bounds = self._store.bounds(queue)
        behind = self._store.offset_at(queue, self._store.position_of(light.queue, choice.next))
        return choice.pulled(max(offset, min(behind, bounds.end)), bounds.min, bounds.end)

    def _look(self, queue: str, offset: int, choice: Choice, tags: frozenset[int]) -> Pulled:
        while True:
            found = self._store.read(queue, offset, choice.count_max, CHUNK_BYTES, tags)
            choice.take(found)
            offset = choice.next
            if not choice.count_max:
                return found

    def _light(self, queue: str, offset: int, selection: Selection) -> _Light | None:
        """Where the messages that follow ``offset`` are in the filter's queue; ``None`` if that has not all of them, or
        is the longer way, as that of a filter over many topics may be."""
        if len(selection.names) != 1 or queue.startswith(LIGHT):
            return None
        bounds = self._store.bounds(queue)
        if not bounds.min <= offset < bounds.end:
            return None
        light = filter_queue(selection.names[0])
        try:
            its = self._store.bounds(light)
        except QueueNotFound:
            return None
        position = self._store.position_of(queue, offset)
        if position < its.first:  # a light queue's first offset is the log position at which it was opened
            return None
        at = self._store.offset_at(light, position)
        return _Light(light, at) if its.min <= at <= its.end and its.end - at < bounds.end - offset else None


def offset_ranges(pulled: Pulled, first: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets, each with its end, whose messages were read from an offset on."""
    if pulled.count == pulled.next - first:
        yield first, pulled.next
        return
    begin = end = -1
    for offset, *_ in ENTRY.iter_unpack(memoryview(pulled.body)[: pulled.count * ENTRY.size]):
        if offset != end:
            if begin < end:
                yield begin, end
            begin = offset
        end = offset + 1
    if begin < end:
        yield begin, end
