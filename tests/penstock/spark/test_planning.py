from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LogReplaced, OffsetOutOfRange
from penstock.spark.offsets import Extent, QueueKey
from penstock.spark.planning import (
    Range,
    Shape,
    in_these_logs,
    not_beyond,
    of_subscription,
    pack,
    ranges_between,
    spread,
)

A0, A1, B0 = QueueKey("t", "a", 0), QueueKey("t", "a", 1), QueueKey("t", "b", 0)
SHAPE = Shape(target_rows=100, partitions_min=1, partitions_max=6)


def extent(first: int, end: int) -> Extent:
    return Extent("127.0.0.1:1", first, end)


def named(first: int, end: int, log_id: str) -> Extent:
    return Extent("127.0.0.1:1", first, end, log_id)


def of_rows(*rows: int) -> list[Range]:
    return [Range("127.0.0.1:1", "t", "a", queue, 10, 10 + count) for queue, count in enumerate(rows)]


def test_queues_without_news_give_no_range() -> None:
    extents = {A0: extent(0, 9), A1: extent(0, 9)}
    found = ranges_between({A0: 9, A1: 4}, {A0: 9, A1: 9}, extents, fail_on_data_loss=True)
    assert found == [Range("127.0.0.1:1", "t", "a", 1, 4, 9)]


def test_a_new_queue_is_read_from_its_first_offset_ever() -> None:
    assert ranges_between({}, {A0: 5}, {A0: extent(0, 9)}, fail_on_data_loss=True)[0][4:6] == (0, 5)


def test_a_new_queue_whose_first_messages_are_gone_is_data_loss() -> None:
    with pytest.raises(OffsetOutOfRange, match="begins at 2"):
        ranges_between({}, {A0: 5}, {A0: extent(2, 9)}, fail_on_data_loss=True)


@pytest.mark.parametrize(("now", "left"), [(extent(7, 9), (7, 9)), (extent(0, 6), (4, 6))])
def test_with_loss_accepted_what_is_still_there_is_read(
    now: Extent, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    found = ranges_between({A0: 4}, {A0: 9}, {A0: now}, fail_on_data_loss=False)
    assert found[0][4:6] == left
    assert "topic 't'" in caplog.text


def test_a_queue_that_is_gone_is_data_loss_or_passed_over() -> None:
    with pytest.raises(OffsetOutOfRange, match="is gone"):
        ranges_between({A0: 4}, {A0: 9}, {}, fail_on_data_loss=True)
    assert ranges_between({A0: 4}, {A0: 9}, {}, fail_on_data_loss=False) == []


def test_a_queue_of_which_nothing_is_to_be_read_may_be_gone() -> None:
    other = QueueKey("u", "a", 0)
    found = ranges_between({A0: 4}, {A0: 4, other: 2}, {other: extent(0, 9)}, fail_on_data_loss=True)
    assert found == [Range("127.0.0.1:1", "u", "a", 0, 0, 2)]


def test_a_queue_that_ends_before_the_start_is_data_loss_or_goes_on_at_its_end() -> None:
    with pytest.raises(OffsetOutOfRange, match="ends at 3"):
        not_beyond({A0: 4}, {A0: extent(0, 3)}, fail_on_data_loss=True)
    assert not_beyond({A0: 4}, {A0: extent(0, 3)}, fail_on_data_loss=False) == {A0: 3}
    assert not_beyond({A0: 4, A1: 9}, {A0: extent(0, 4)}, fail_on_data_loss=True) == {A0: 4, A1: 9}


def test_places_of_a_log_that_was_replaced_are_an_error_or_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    start, logs, now = (
        {A0: 4, A1: 2, B0: 7},
        {"a": "old", "b": "same"},
        {A0: named(1, 9, "new"), B0: named(0, 9, "same")},
    )
    with pytest.raises(LogReplaced, match="broker 'a' was wiped or replaced: offsets are of log old, and it has new"):
        in_these_logs(start, logs, now, fail_on_data_loss=True)
    assert in_these_logs(start, logs, now, fail_on_data_loss=False) == {A0: 1, B0: 7}, "A1 is not in the new log"
    assert "wiped or replaced" in caplog.text


def test_an_unknown_log_is_taken_up() -> None:
    start, now = {A0: 4}, {A0: named(0, 9, "new")}
    assert in_these_logs(start, {}, now, fail_on_data_loss=True) == start
    assert in_these_logs(start, {"a": "old"}, {A0: extent(0, 9)}, fail_on_data_loss=True) == start
    assert in_these_logs(start, {"a": "old"}, {}, fail_on_data_loss=True) == start


def test_a_batch_of_a_log_that_is_gone_is_an_error_or_empty() -> None:
    now, logs = {A0: named(0, 99, "new")}, {"a": "old"}
    with pytest.raises(LogReplaced):
        ranges_between({A0: 4}, {A0: 9}, now, fail_on_data_loss=True, start_logs=logs, end_logs=logs)
    assert ranges_between({A0: 4}, {A0: 9}, now, fail_on_data_loss=False, start_logs=logs, end_logs=logs) == []
    assert ranges_between({A0: 9}, {A0: 9}, now, fail_on_data_loss=True, start_logs=logs, end_logs=logs) == []


def test_a_batch_that_begins_in_the_old_log_and_ends_in_the_new_one_has_all_of_the_new_one() -> None:
    now, logs = {A0: named(1, 99, "new")}, {"start_logs": {"a": "old"}, "end_logs": {"a": "new"}}
    with pytest.raises(LogReplaced):
        ranges_between({A0: 50}, {A0: 9}, now, fail_on_data_loss=True, **logs)
    (found,) = ranges_between({A0: 50}, {A0: 9}, now, fail_on_data_loss=False, **logs)
    assert found[4:7] == (1, 9, "new")


def test_a_checkpoint_of_another_topic_is_an_error_or_told(caplog: pytest.LogCaptureFixture) -> None:
    start = {A0: 4, QueueKey("u", "a", 0): 2}
    with pytest.raises(OffsetOutOfRange, match="offsets of topic 't', which this query does not read") as raised:
        of_subscription(start, lambda key: key.topic == "u", fail_on_data_loss=True)
    assert "checkpointLocation of its own" in raised.value.hint
    left = of_subscription(start, lambda key: key.topic == "u", fail_on_data_loss=False)
    assert left == {QueueKey("u", "a", 0): 2}
    assert "topic 't'" in caplog.text
    assert of_subscription(start, lambda key: True, fail_on_data_loss=True) == start


def test_small_queues_are_packed_into_one_partition() -> None:
    assert pack(of_rows(20, 30, 50), SHAPE) == [tuple(of_rows(20, 30, 50))]


def test_a_large_queue_is_split_into_parts_of_the_same_size() -> None:
    parts = pack(of_rows(400), SHAPE)
    assert [[one[4:6] for one in part] for part in parts] == [[(10, 110)], [(110, 210)], [(210, 310)], [(310, 410)]]


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


def test_a_queue_that_was_deleted_and_made_again_is_data_loss_unless_all_of_it_was_read() -> None:
    again = Extent("127.0.0.1:1", 5, 9, first=5)
    with pytest.raises(OffsetOutOfRange, match="was deleted or purged at offset 5; offset 3 is wanted"):
        ranges_between({A0: 3}, {A0: 9}, {A0: again}, fail_on_data_loss=True)
    assert ranges_between({A0: 5}, {A0: 9}, {A0: again}, fail_on_data_loss=True)[0][4:6] == (5, 9)
    assert ranges_between({}, {A0: 9}, {A0: again}, fail_on_data_loss=True)[0][4:6] == (5, 9), "a new one to us"


def test_partitions_are_read_at_the_copies_of_a_log_in_turn_and_elsewhere_at_the_leader() -> None:
    led, alone = of_rows(250)[0]._replace(copies=("c:1", "c:2")), of_rows(0, 50)[1]
    told = spread(pack([led, alone], SHAPE))
    assert [[(one.address, one.leader) for one in part] for part in told] == [
        [("c:1", "127.0.0.1:1")],
        [("c:2", "127.0.0.1:1")],
        [("c:1", "127.0.0.1:1"), ("127.0.0.1:1", "")],
    ]
    assert spread([(led._replace(start=11),)])[0][0].address == "c:2", "another batch of one partition"
