"""Stretches: whole, without overlap, bounded, and never a promise about bytes that were not looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.store import stretches
from broker.store.frames import crc32c
from broker.store.stretches import STRETCH_BYTES, STRETCH_BYTES_MAX, Stretch, Stretches


def test_what_is_written_becomes_stretches_of_whole_writes() -> None:
    known = Stretches()
    writes = [bytes([number]) * 30_000 for number in range(6)]
    for number, data in enumerate(writes):
        known.written(1000 + number * 30_000, data)
    assert known.at(999) is None
    assert known.at(1000) == known.at(90_999) == Stretch(1000, 91_000, crc32c(b"".join(writes[:3])))
    assert known.at(91_000) == Stretch(91_000, 181_000, crc32c(b"".join(writes[3:])))
    assert known.at(181_000) is None


def test_large_writes_are_summed_when_nobody_waits_and_make_the_same_stretches() -> None:
    writes = [bytes([number]) * 20_000 for number in range(7)]
    at_once, later = Stretches(), Stretches()
    for number, data in enumerate(writes):
        for known in (at_once, later):
            known.written(number * 20_000, data)
        later.catch_up()
        assert not later._unsummed
    assert at_once._unsummed
    small = Stretches()
    small.written(0, b"abc")
    small.catch_up()
    assert small._unsummed == [b"abc"], "small ones are put together first"
    for position in (0, 80_000, 139_999):
        assert later.at(position) == at_once.at(position)
        assert later.at(position) is not None


def test_the_stretch_that_is_being_written_is_known_too() -> None:
    known = Stretches()
    known.written(0, b"abc")
    known.written(3, b"de")
    assert known.at(4) == Stretch(0, 5, crc32c(b"abcde"))
    known.close()
    known.written(100, b"f")
    assert (known.at(4), known.at(100)) == (Stretch(0, 5, crc32c(b"abcde")), Stretch(100, 101, crc32c(b"f")))


def test_a_write_too_long_to_be_read_for_a_little_of_it_is_no_stretch() -> None:
    known = Stretches()
    known.written(0, b"abc")
    known.written(3, bytes(STRETCH_BYTES_MAX + 1))
    known.written(STRETCH_BYTES_MAX + 4, b"d")
    assert (known.at(2), known.at(3)) == (Stretch(0, 3, crc32c(b"abc")), None)
    assert known.at(STRETCH_BYTES_MAX + 4) == Stretch(STRETCH_BYTES_MAX + 4, STRETCH_BYTES_MAX + 5, crc32c(b"d"))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=30), st.integers(0, 200))
def test_stretches_never_overlap_whatever_is_learned_in_whatever_order(
    pieces: list[tuple[int, int]], forgotten: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "STRETCH_BYTES", 2)
        known = Stretches()
        known.written(100, b"xyz")
        for start, size in pieces:
            known.learn(start * 4, bytes(size * 2))
        found = [known.at(place) for place in range(140)]
        for place, stretch in enumerate(found):
            if stretch is not None:
                assert stretch.start <= place < stretch.end
                assert set(found[stretch.start : stretch.end]) == {stretch}
        for start, end in ((0, 140), (3, 60), (20, 102), (50, 50)):
            inside = [one for one in dict.fromkeys(found) if one and start <= one.start and one.end <= end]
            assert known.within(start, end) == inside
        known.forget_before(forgotten)
        left = [known.at(place) for place in range(100)]
        assert all(stretch is None or stretch.end > forgotten for stretch in left)


def test_what_is_too_short_or_overlaps_is_not_learned() -> None:
    known = Stretches()
    known.learn(0, bytes(STRETCH_BYTES - 1))
    assert len(known) == 0
    known.learn(10, bytes(STRETCH_BYTES))
    known.learn(0, bytes(STRETCH_BYTES))
    assert (len(known), known.at(0)) == (1, None)


@pytest.mark.interpreted
def test_the_table_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCHES_MAX", 64)
    known = Stretches()
    for number in range(200):
        known.written(number * STRETCH_BYTES, bytes(STRETCH_BYTES))
    assert len(known) <= 64
    assert known.at(0) is None
    assert known.at(199 * STRETCH_BYTES) is not None
