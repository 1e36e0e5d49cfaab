"""What written rows are known by."""

from __future__ import annotations

from penstock.protocol.runs import DIGITS
from penstock.spark.sink.numbers import EPOCHS, SPAN, Numbers, Task


def test_numbers_of_a_topic_at_a_broker_count_without_a_gap_within_an_epoch() -> None:
    numbers = Numbers(Task("q", 3, 0))
    first = numbers.take("t", "a", "a,b", 10)
    assert numbers.take("t", "b", "a,b", 4)[1] == first[1] == 3 * SPAN
    assert numbers.take("t", "a", "a,b", 10) == (first[0], first[1] + 10)


def test_a_repeated_task_takes_the_same_numbers_and_no_other_task_does() -> None:
    tasks = [Task(*one) for one in (("q", 0, 0), ("r", 0, 0), ("q", 1, 0), ("q", 0, 1), ("q", EPOCHS, 0))]
    ways = [("t", "a", "a"), ("u", "a", "a"), ("t", "a", "a,b"), ("t", "b", "a,b")]
    taken = [Numbers(task).take(*way, 1) for task in tasks for way in ways]
    assert len(set(taken)) == len(taken)
    assert taken == [Numbers(task).take(*way, 1) for task in tasks for way in ways]


def test_a_query_is_few_producers_however_many_batches_it_has() -> None:
    assert len({Numbers(Task("q", epoch, 0)).take("t", "a", "a", 1)[0] for epoch in range(1000)}) == 1


def test_more_rows_than_a_span_are_another_producers() -> None:
    numbers = Numbers(Task("q", 0, 0))
    first, _ = numbers.take("t", "a", "a", SPAN - 1)
    second, number = numbers.take("t", "a", "a", 2)
    assert second != first
    assert number == 0


def test_the_highest_number_has_digits() -> None:
    _, number = Numbers(Task("q", EPOCHS - 1, 0)).take("t", "a", "a", SPAN)
    assert number + SPAN == 1 << 4 * DIGITS
