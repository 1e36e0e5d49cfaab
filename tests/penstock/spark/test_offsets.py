from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidConfig, OffsetOutOfRange
from penstock.spark.offsets import (
    EARLIEST,
    LATEST,
    LOGS,
    Extent,
    QueueKey,
    advance,
    check_not_lost,
    logs_in,
    logs_of,
    named,
    seen_before,
    settle,
    to_offsets,
    to_places,
)
from topicmap.names import InvalidName
from topicmap.queues import check_topic

A0, A1, B0 = QueueKey("t", "a", 0), QueueKey("t", "a", 1), QueueKey("t", "b", 0)


def extent(first: int, end: int) -> Extent:
    return Extent("127.0.0.1:1", first, end)


def test_the_checkpointed_dict_is_sorted_however_it_came_about() -> None:
    one = to_offsets({B0: 3, A1: 2, A0: 1})
    other = to_offsets({A0: 1, A1: 2, B0: 3})
    assert json.dumps(one) == json.dumps(other) == '{"t": {"a:0": 1, "a:1": 2, "b:0": 3}}'


def test_ten_queues_are_in_the_same_order_both_ways() -> None:
    places = {QueueKey("t", "a", number): number for number in range(12)}
    assert to_places(to_offsets(places)) == places


def test_a_broker_name_may_hold_a_colon() -> None:
    assert to_places({"t": {"rack:7:3": 5}}) == {QueueKey("t", "rack:7", 3): 5}


def test_the_log_of_each_broker_that_has_a_place_is_in_the_dict() -> None:
    offsets = to_offsets({B0: 3, A0: 1}, {"b": "2", "a": "1", "c": "3"})
    assert json.dumps(offsets) == '{"t": {"a:0": 1, "b:0": 3}, "@logs": {"a": "1", "b": "2"}}'
    assert to_places(offsets) == {A0: 1, B0: 3}
    assert logs_in(offsets) == {"a": "1", "b": "2"}
    assert logs_in({"t": {"a:0": 1}}) == {}, "an older version has written it"
    with pytest.raises(InvalidName):
        check_topic(LOGS)


def test_a_brokers_log_is_that_of_any_of_its_queues() -> None:
    assert logs_of({A0: Extent("h:1", 0, 1, "x"), B0: Extent("h:2", 0, 1)}) == {"a": "x"}


@pytest.mark.parametrize("name", ["3", "a:", "a:x", ""])
def test_a_key_that_is_no_queue_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="no queue"):
        to_places({"t": {name: 1}})


def test_plain_queue_numbers_will_do_where_one_broker_has_the_topic() -> None:
    assert named({"t": {"0": 5, "a:1": 6}}, [A0, A1], "startingOffsets") == {A0: 5, A1: 6}


def test_plain_queue_numbers_are_unclear_where_two_brokers_have_the_topic() -> None:
    with pytest.raises(InvalidConfig, match="2 brokers have topic") as raised:
        named({"t": {"0": 5}}, [A0, B0], "startingOffsets")
    assert "a:0" in raised.value.hint


@pytest.mark.parametrize(
    ("given_offsets", "complaint"),
    [({"t": {"0": 5}}, "lacks t a:1"), ({"t": {"0": 5, "1": 6, "2": 7}}, "names t a:2"), ({"u": {"0": 1}}, "names u")],
)
def test_offsets_must_name_exactly_the_queues_that_are_read(given_offsets: dict, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        named(given_offsets, [A0, A1], "startingOffsets")


def test_kafkas_numbers_become_todays_ends() -> None:
    extents = {A0: extent(3, 9), A1: extent(4, 8), B0: extent(0, 1)}
    assert settle({A0: EARLIEST, A1: LATEST, B0: 0}, extents) == {A0: 3, A1: 8, B0: 0}


def test_without_a_limit_a_batch_reads_to_all_ends() -> None:
    assert advance({A0: 2, A1: 5}, {A0: extent(0, 9), A1: extent(0, 5)}) == {A0: 9, A1: 5}


def test_a_queue_that_appears_begins_at_its_first_offset() -> None:
    assert advance({A0: 9}, {A0: extent(0, 9), A1: extent(0, 4)}, rows_max=2) == {A0: 9, A1: 2}


def test_a_queue_that_cannot_be_seen_just_now_stays_where_it_is() -> None:
    assert advance({A0: 2, B0: 7}, {A0: extent(0, 9)}) == {A0: 9, B0: 7}


def test_nothing_goes_back_where_an_end_was_seen_too_early() -> None:
    assert advance({A0: 9}, {A0: extent(0, 5)}) == {A0: 9}


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    extents = {A0: extent(0, 900), A1: extent(0, 100)}
    assert advance({A0: 0, A1: 0}, extents, rows_max=100) == {A0: 90, A1: 10}


def test_a_small_queue_never_starves_beside_a_large_one() -> None:
    extents = {A0: extent(0, 1_000_000), A1: extent(0, 1)}
    assert advance({A0: 0, A1: 0}, extents, rows_max=100)[A1] == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8), st.integers(1, 60))
def test_batches_under_a_limit_reach_every_end_without_passing_it(bounds: list[tuple[int, int]], limit: int) -> None:
    extents = {QueueKey("t", "a", at): extent(low, low + size) for at, (low, size) in enumerate(bounds)}
    at = {key: one.min for key, one in extents.items()}
    ends = {key: one.end for key, one in extents.items()}
    for _ in range(sum(size for _, size in bounds) + 1):
        further = advance(at, extents, limit)
        read = sum(further.values()) - sum(at.values())
        assert all(at[key] <= further[key] <= ends[key] for key in at)
        assert read <= limit + len(bounds)
        assert read > 0 or at == ends
        at = further
    assert at == ends


@pytest.mark.parametrize(
    ("start", "end", "now", "complaint"),
    [
        (2, 9, extent(3, 9), "begins at 3 now; offset 2 is wanted: 2 to 2 are gone"),
        (2, 5, extent(7, 9), "begins at 7 now; offset 2 is wanted: 2 to 4 are gone"),
        (2, 9, extent(0, 8), "ends at 8 now"),
        (9, 8, extent(0, 9), "offsets 9 to 8"),
        (2, 9, None, "broker says that queue 1 of topic 't' at broker 'a' is gone"),
    ],
)
def test_lost_offsets_are_named_with_queue_and_remedy(start: int, end: int, now: Extent | None, complaint: str) -> None:
    with pytest.raises(OffsetOutOfRange, match=complaint) as raised:
        check_not_lost(A1, start, end, now)
    assert "queue 1 of topic 't' at broker 'a'" in raised.value.message
    assert "When messages are lost" in raised.value.hint
    assert "failOnDataLoss" not in raised.value.hint


def test_an_empty_range_before_the_first_offset_lost_nothing() -> None:
    check_not_lost(A0, 2, 2, extent(3, 9))


def test_a_queue_that_is_not_subscribed_any_more_lost_nothing_where_nothing_was_to_be_read() -> None:
    check_not_lost(A0, 9, 9, None)


def test_a_copy_that_lags_behind_what_was_seen_takes_nothing_of_it_back() -> None:
    lagging = Extent("h:2", 0, 4, "log", is_copy=True)
    assert seen_before({A0: lagging}, {A0: 9}, {"a": "log"}) == {A0: lagging._replace(end=9)}
    assert seen_before({A0: lagging}, {A0: 3}, {"a": "log"}) == {A0: lagging}
    assert seen_before({A0: lagging}, {A0: 9}, {"a": "another"}) == {A0: lagging}, "that log was replaced"
    leader = lagging._replace(is_copy=False)
    assert seen_before({A0: leader}, {A0: 9, B0: 1}, {"a": "log"}) == {A0: leader}, "it has lost something"
