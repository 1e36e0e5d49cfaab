"""Retention: by age, by size, never under a reader unless forced, and only to where the log can be read from."""

from __future__ import annotations

from broker.kernel.fold import fact_record
from broker.lineage.removals import Removals
from broker.store.records import REMOVED_TOPIC
from broker.store.retention import Removal, removed_by, segments_to_drop
from broker.store.settings import StoreSettings
from penstock.protocol.message import encode_record
from tests.broker.store.store_rig import pack_frame, record_of

BASES = [0, 100, 200, 300]
FIRST_MS = {100: 1000, 200: 2000, 300: 3000}


def removal(
    *,
    bytes_max: int = 0,
    age_s: float = 0.0,
    now_ms: int = 0,
    safe: int = 350,
    needed: int | None = None,
    without: tuple[int, ...] = (),
) -> Removal | None:
    settings = StoreSettings(retention_bytes=bytes_max, retention_s=age_s)
    keyframe = lambda base: base not in without  # noqa: E731
    return segments_to_drop(BASES, 350, safe, needed, keyframe, FIRST_MS.__getitem__, now_ms, settings)


def test_without_limits_everything_stays() -> None:
    assert removal(now_ms=1 << 60) is None


def test_a_segment_goes_when_all_its_records_are_too_old() -> None:
    assert removal(age_s=1.0, now_ms=2000) is None
    assert removal(age_s=1.0, now_ms=2001) == Removal(0, 100, False)
    assert removal(age_s=1.0, now_ms=1 << 60) == Removal(0, 300, False)


def test_the_oldest_go_until_the_size_fits() -> None:
    assert removal(bytes_max=350) is None
    assert removal(bytes_max=349) == Removal(0, 100, False)
    assert removal(bytes_max=150) == Removal(0, 200, False)
    assert removal(bytes_max=1) == Removal(0, 300, False)


def test_age_waits_for_the_slowest_reader() -> None:
    assert removal(age_s=1.0, now_ms=1 << 60, needed=50) is None
    assert removal(age_s=1.0, now_ms=1 << 60, needed=250) == Removal(0, 200, False)


def test_size_does_not_wait_and_says_so() -> None:
    assert removal(bytes_max=150, needed=150) == Removal(0, 200, True)
    assert removal(bytes_max=150, needed=200) == Removal(0, 200, False)


def test_nothing_goes_that_is_not_durable_and_sealed() -> None:
    assert removal(bytes_max=1, safe=250) == Removal(0, 200, False)
    assert removal(bytes_max=1, safe=99) is None


def test_a_segment_without_a_keyframe_goes_with_the_next_that_has_one() -> None:
    assert removal(bytes_max=200, without=(200,)) == Removal(0, 300, False)
    assert removal(bytes_max=1, without=(100, 200)) == Removal(0, 300, False)
    assert removal(bytes_max=1, without=(100, 200, 300)) is None


def test_only_the_record_of_a_removal_removes() -> None:
    record = record_of(fact_record(REMOVED_TOPIC, Removals.fact(300)))
    assert removed_by(pack_frame(record, 0, 0, 900, 1, 1, 0), 900) == 300
    told = encode_record(b"t", REMOVED_TOPIC.encode(), b"")
    assert removed_by(pack_frame(told, 0, 0, 900, 1, 1, 0), 900) == 0
