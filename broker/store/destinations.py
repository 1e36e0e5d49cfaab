"""The destination of messages with the same tail: the meaning of their topic and properties for the store.

Senders repeat themselves, so it is worked out once (``writing.py``) and kept with the tail (``acceptance.Tail``). Tails
that differ only in an id that counts have the same destination.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.store.level import Level
from broker.store.queue_index import Queue
from broker.store.run_frames import Layout, layout_of
from penstock.protocol.message import check_tail
from penstock.protocol.runs import DIGITS, Run, run_of
from topicmap.queues import SYSTEM_PREFIX


class Destination:
    """The destination of one tail.

    Attributes:
        topic, properties: those of the tail; of tails that count, in that of the first message.
        level: its topic's.
        is_system: its records are facts, which are in no queue.
        id_at: where in the properties the unique id that counts begins, -1 if none does. ``producer``: what is before
            the digits that count.
        queue: the topic queue of the last run, ``None`` before the first; without a key they take turns. ``queue_id``
            is its number.
        tag, keys: their hashes, those of an id that counts left out. ``id_hash``: of the text before its digits.
        light: the light queues, as of ``light_as_of`` changes of the folds.
        layout: that of the last run.
    """

    __slots__ = (
        "id_at",
        "id_hash",
        "is_system",
        "keys",
        "layout",
        "level",
        "light",
        "light_as_of",
        "producer",
        "properties",
        "queue",
        "queue_id",
        "tag",
        "topic",
    )

    def __init__(self, topic: str, properties: bytes, level: Level, id_at: int = -1) -> None:
        self.topic = topic
        self.properties = properties
        self.level = level
        self.is_system = topic.startswith(SYSTEM_PREFIX)
        self.id_at = id_at
        self.producer = properties[id_at:-DIGITS] if id_at >= 0 else b""
        self.queue: Queue | None = None
        self.queue_id = -1
        self.tag = 0
        self.keys: tuple[int, ...] = ()
        self.id_hash = 0
        self.light: list[Queue] = []
        self.light_as_of = -1
        self.layout: Layout | None = None

    def layout_of(self, run: Run, epoch: int) -> Layout:
        """How a run's frames are laid out."""
        layout = self.layout
        if layout is None or not layout.fits(run, epoch):
            layout = self.layout = layout_of(run, epoch, self.tag)
        return layout

    def properties_of(self, tail: bytes) -> bytes:
        """The properties in one of its tails: they have the same size in all."""
        return tail[len(tail) - len(self.properties) :]


class Incoming(NamedTuple):
    """A run about to be appended, and where it goes."""

    run: Run
    destination: Destination


def incoming_of(record: bytes, level: Level = Level.QUORUM) -> Incoming:
    """A checked record that says its queue, or a fact, as a run of its own."""
    run = run_of(record)
    properties_at = check_tail(run.tail)
    topic = run.tail[2 : properties_at - 2].decode()
    destination = Destination(topic, run.tail[properties_at:], level)
    if destination.is_system:
        run.queue_id = 0
    return Incoming(run, destination)
