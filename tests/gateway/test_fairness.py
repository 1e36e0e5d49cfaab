"""Turns by key, by what each item has cost, and who is crowded out of a full queue."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.fairness import FairQueue

COSTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=60)


def queued(quantum: int, *items: str) -> FairQueue[str, str]:
    """A queue with these items, each named by its key and a number."""
    queue: FairQueue[str, str] = FairQueue(quantum)
    for item in items:
        queue.add(item[0], item)
    return queue


def served(queue: FairQueue[str, str], cost: int = 1) -> list[str]:
    """The items in the order of their turns, each of which costs so much."""
    items = []
    while (taken := queue.take()) is not None:
        queue.charge(taken[0], cost)
        items.append(taken[1])
    return items


def test_keys_have_turns_and_the_items_of_each_their_order() -> None:
    assert served(queued(1, "a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_turn_lasts_until_its_quantum_is_spent() -> None:
    assert served(queued(2, "a1", "a2", "a3", "b1", "b2", "b3")) == ["a1", "a2", "b1", "b2", "a3", "b3"]


def test_an_item_that_costs_more_than_a_turn_is_paid_for_in_the_next_turns() -> None:
    queue = queued(10, "a1", "a2", "b1", "b2", "b3", "b4")
    order = []
    while (taken := queue.take()) is not None:
        queue.charge(taken[0], 25 if taken[0] == "a" else 10)
        order.append(taken[1])
    assert order == ["a1", "b1", "b2", "a2", "b3", "b4"]


def test_a_key_owes_also_for_an_item_that_is_put_back_while_it_is_carried_out() -> None:
    queue = queued(10, "a1", "b1", "b2", "b3")
    assert queue.take() == ("a", "a1")
    queue.charge("a", 25)
    queue.add("a", "a1 again")
    assert served(queue, 10) == ["b1", "b2", "a1 again", "b3"]


def test_a_round_ends_when_its_room_is_spent_and_the_next_goes_on_there() -> None:
    queue = queued(1, "a1", "a2", "b1", "b2")
    queue.begin(3)
    assert served(queue) == ["a1", "b1", "a2"]
    assert (len(queue), queue.room) == (1, 0)
    queue.begin(3)
    assert served(queue) == ["b2"]


def test_a_key_that_is_dropped_has_nothing_left_and_keeps_nobody_waiting() -> None:
    queue = queued(1, "a1", "a2", "b1")
    assert queue.take() == ("a", "a1")
    assert queue.drop("a") == ["a2"]
    assert queue.drop("a") == []
    assert served(queue) == ["b1"]
    assert not queue


def test_from_a_full_queue_the_last_item_of_the_key_with_most_is_crowded_out() -> None:
    queue = queued(1, "a1", "a2", "a3", "b1")
    assert queue.crowd_out("b") == "a3"
    assert queue.crowd_out("c") == "a2"
    assert queue.crowd_out("a") is None, "it has most itself"
    assert queue.crowd_out("c") is None, "it would have as many"
    assert served(queue) == ["a1", "b1"]


def test_a_queue_without_items_has_nothing_to_crowd_out() -> None:
    assert queued(1).crowd_out("a") is None


@given(COSTS, st.integers(1, 20), st.integers(1, 40))
def test_every_item_is_served_once_and_in_the_order_of_its_key(
    items: list[tuple[str, int]], quantum: int, room: int
) -> None:
    queue: FairQueue[str, tuple[int, int]] = FairQueue(quantum)
    for number, (key, cost) in enumerate(items):
        queue.add(key, (number, cost))
    done: list[tuple[str, int]] = []
    while queue:
        queue.begin(room)
        while (taken := queue.take()) is not None:
            key, (number, cost) = taken
            queue.charge(key, cost)
            done.append((key, number))
    for one in "abc":
        assert [number for key, number in done if key == one] == [
            number for number, (key, _) in enumerate(items) if key == one
        ]


@given(COSTS, st.integers(1, 20))
def test_no_key_costs_more_than_a_turn_and_an_item_beyond_another_that_waits(
    items: list[tuple[str, int]], quantum: int
) -> None:
    queue: FairQueue[str, int] = FairQueue(quantum)
    for key, cost in items:
        queue.add(key, cost)
    waiting, spent = Counter(key for key, _ in items), Counter(dict.fromkeys("abc", 0))
    while (taken := queue.take()) is not None:
        key, cost = taken
        queue.charge(key, cost)
        waiting[key] -= 1
        spent[key] += cost
        others = [spent[one] for one in "abc" if waiting[one] and one != key]
        assert spent[key] <= min(others, default=spent[key]) + 2 * (quantum + 50)
