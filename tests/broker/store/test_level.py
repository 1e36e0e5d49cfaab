"""Levels and their words."""

from __future__ import annotations

import pytest

from broker.store.level import Level


def test_the_words_of_levels_are_those_of_settings_and_receipts_the_weakest_first() -> None:
    assert [level.word for level in sorted(Level)] == ["cache", "disk", "quorum"]
    assert [Level.of(word) for word in ("cache", "disk", "quorum")] == sorted(Level)
    with pytest.raises(KeyError):
        Level.of("ram")
