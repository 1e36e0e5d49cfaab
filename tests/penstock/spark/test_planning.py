from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OffsetOutOfRange
from penstock.spark.offsets import Extent, QueueKey
from penstock.spark.planning import Range, Shape, not_beyond, pack, ranges_between

A0, A1 = QueueKey("t", "a", 0), QueueKey("t", "a", 1)
SHAPE = Shape(target_rows=100, partitions_min=1, partitions_max=6)


def extent(first: int, end: int) -> Extent:
    return Extent("127.0.0.1:1", first, end)


def of_rows(*rows: int) -> list[Range]:
    return [Range("127.0.0.1:1", "t", "a", queue, 10, 10 + count) for queue, count in enumerate(rows)]


def test_queues_without_news_give_no_range() -> None:
    extents = {A0: extent(0, 9), A1: extent(0, 9)}
    found = ranges_between({A0: 9, A1: 4}, {A0: 9, A1: 9}, extents, fail_on_data_loss=True)
    assert found == [Range("127.0.0.1:1", "t", "a", 1, 4, 9)]


def test_a_new_queue_is_read_from_its_first_offset_ever() -> None:
    assert ranges_between({}, {A0: 5}, {A0: extent(0, 9)}, fail_on_data_loss=True)[0][4:] == (0, 5)


def test_a_new_queue_whose_first_messages_are_gone_is_data_loss() -> None:
    with pytest.raises(OffsetOutOfRange, match="begins at 2"):
        ranges_between({}, {A0: 5}, {A0: extent(2, 9)}, fail_on_data_loss=True)


@pytest.mark.parametrize(("now", "left"), [(extent(7, 9), (7, 9)), (extent(0, 6), (4, 6))])
def test_with_loss_accepted_what_is_still_there_is_read(
    now: Extent, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    found = ranges_between({A0: 4}, {A0: 9}, {A0: now}, fail_on_data_loss=False)
    assert found[0][4:] == left
    assert "topic 't'" in caplog.text


def test_a_queue_that_is_gone_is_data_loss_or_passed_over() -> None:
    with pytest.raises(OffsetOutOfRange, match="or gone"):
        ranges_between({A0: 4}, {A0: 9}, {}, fail_on_data_loss=True)
    assert ranges_between({A0: 4}, {A0: 9}, {}, fail_on_data_loss=False) == []


def test_a_stream_goes_on_with_another_subscription_where_all_of_the_old_one_was_read() -> None:
    other = QueueKey("u", "a", 0)
    found = ranges_between({A0: 4}, {A0: 4, other: 2}, {other: extent(0, 9)}, fail_on_data_loss=True)
    assert found == [Range("127.0.0.1:1", "u", "a", 0, 0, 2)]


def test_a_queue_that_ends_before_the_start_is_data_loss_or_goes_on_at_its_end() -> None:
    with pytest.raises(OffsetOutOfRange, match="ends at 3"):
        not_beyond({A0: 4}, {A0: extent(0, 3)}, fail_on_data_loss=True)
    assert not_beyond({A0: 4}, {A0: extent(0, 3)}, fail_on_data_loss=False) == {A0: 3}
    assert not_beyond({A0: 4, A1: 9}, {A0: extent(0, 4)}, fail_on_data_loss=True) == {A0: 4, A1: 9}


def test_small_queues_are_packed_into_one_partition() -> None:
    assert pack(of_rows(20, 30, 50), SHAPE) == [tuple(of_rows(20, 30, 50))]


def test_a_large_queue_is_split_into_parts_of_the_same_size() -> None:
    parts = pack(of_rows(400), SHAPE)
    assert [[one[4:] for one in part] for part in parts] == [[(10, 110)], [(110, 210)], [(210, 310)], [(310, 410)]]


def test_no_more_partitions_than_the_most_are_made() -> None:
    assert len(pack(of_rows(10_000), SHAPE)) == 6


def test_the_least_partitions_are_made_even_of_few_rows() -> None:
    assert len(pack(of_rows(10, 10), SHAPE._replace(partitions_min=4))) == 4


def test_nothing_to_read_is_no_partition() -> None:
    assert pack([], SHAPE) == []


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=6),
    st.integers(1, 300),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_however_it_is_cut_every_offset_is_in_one_partition(
    rows: list[int], target: int, least: int, most: int
) -> None:
    parts = pack(of_rows(*rows), Shape(target, least, most))
    read = [(one.queue, offset) for part in parts for one in part for offset in range(one.start, one.end)]
    assert read == [(queue, 10 + at) for queue, count in enumerate(rows) for at in range(count)]
    assert len(parts) <= max(most, least)
