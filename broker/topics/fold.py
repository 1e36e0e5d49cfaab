"""Fold of topics: which exist, with how many queues and at which level."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.requests.topics import TopicInfo

TOPIC: Final = "%sys%topics"


class Topics:
    """All topics of a broker. ``version`` grows by one with each change, so that name servers can tell old from new."""

    KEY: Final = "topics"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self._topics: dict[str, TopicInfo] = {}  # what has changed last comes last, of changes since the restore
        self.version = 0

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self._topics.values())

    def get(self, topic: str) -> TopicInfo | None:
        """The topic of that name if there is one."""
        return self._topics.get(topic)

    def since(self, version: int) -> list[TopicInfo]:
        """All that have changed since a version that was current after the last restore, perhaps with a few others."""
        return list(islice(reversed(self._topics.values()), self.version - version))

    @staticmethod
    def fact(topic: TopicInfo) -> list[Any]:
        """Body of the record that creates or changes a topic."""
        return list(topic)

    def apply(self, record: Stored) -> Change:
        body = fact_of(record)
        topic = TopicInfo(*body[: len(TopicInfo._fields)])
        self._topics.pop(topic.topic, None)
        self._topics[topic.topic] = topic
        self.version += 1
        return NO_CHANGE

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return [self.version, sorted(list(topic) for topic in self._topics.values())]

    def freeze(self) -> Iterator[bytes]:
        return packed(self.snapshot())

    def restore(self, snapshot: list[Any] | None) -> None:
        self.version, topics = snapshot or (0, ())
        self._topics = {row[0]: TopicInfo(*row) for row in topics}
