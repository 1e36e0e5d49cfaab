"""Where messages with the same tail go: what their topic and properties mean to the store. Devices repeat
themselves, so it is worked out once (``writing.py``) and kept with whatever else is known of a tail
(``acceptance.Tail``)."""

from __future__ import annotations

from broker.store.level import Level
from broker.store.queue_index import Queue
from broker.store.run_frames import Layout, layout_of
from penstock.protocol.runs import Run


class Destination:
    """Of one tail.

    Attributes:
        topic, properties: what is said in the tail.
        level: its topic's.
        queue: the topic queue of the last run, ``None`` before the first; without a key they take turns. ``queue_id``
            is its number.
        tag, keys: their hashes.
        light: the light queues, as of ``light_as_of`` changes of the folds.
        layout: that of the last run.
    """

    __slots__ = (
        "keys",
        "layout",
        "level",
        "light",
        "light_as_of",
        "properties",
        "queue",
        "queue_id",
        "tag",
        "topic",
    )

    def __init__(self, topic: str, properties: bytes, level: Level) -> None:
        self.topic = topic
        self.properties = properties
        self.level = level
        self.queue: Queue | None = None
        self.queue_id = -1
        self.tag = 0
        self.keys: tuple[int, ...] = ()
        self.light: list[Queue] = []
        self.light_as_of = -1
        self.layout: Layout | None = None

    def layout_of(self, run: Run, epoch: int) -> Layout:
        """How a run's frames are laid out."""
        layout = self.layout
        if layout is None or not layout.fits(run):
            layout = self.layout = layout_of(run, epoch, self.tag)
        return layout
