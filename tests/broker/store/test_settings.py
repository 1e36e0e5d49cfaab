"""The defaults fit each other."""

from __future__ import annotations

from broker.store.frames import BLANK_BYTES_MIN
from broker.store.settings import StoreSettings
from penstock.protocol.message import FRAME_BYTES_MAX


def test_a_default_segment_holds_the_largest_record_and_several_chunks() -> None:
    settings = StoreSettings()
    assert settings.segment_bytes >= 4 * (FRAME_BYTES_MAX + BLANK_BYTES_MIN)
    assert settings.reserve_step_bytes <= settings.chunk_bytes <= settings.segment_bytes


def test_a_small_machine_does_not_fill_a_whole_segment_with_zeros() -> None:
    assert StoreSettings().reserve_step_bytes <= 16 << 20
