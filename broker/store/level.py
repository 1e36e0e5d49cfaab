"""The level that a message has reached before it is acknowledged."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """A topic's level, the weakest first. ``CACHE``: the log's file, not synced. ``DISK``: the disk of the broker that
    took it. ``QUORUM``: committed, on as many disks as the log has to be on."""

    CACHE = 1
    DISK = 2
    QUORUM = 3

    @property
    def word(self) -> str:
        """The word for it in requests and settings."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Level:
        """The level that a word stands for. Raises ``KeyError``."""
        return _LEVELS[word]


_LEVELS = {level.word: level for level in Level}
