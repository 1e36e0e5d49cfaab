"""The registry of folds: who is fed with what, what follows from a change, and a fold that only this test has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kernel.fold import FoldRegistry, fact_of, in_parts, packed
from broker.store.records import NO_CHANGE, Change, Stored
from tests.broker.facts import fact

SUMS = "%sys%sums"


class Overflow(NamedTuple):
    """A sum has passed ten."""

    total: int


class Sum:
    """A toy fold: the sum of all numbers that were stored."""

    KEY: Final = "sum"
    TOPICS: Final = (SUMS,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.total = 0

    def apply(self, record: Stored) -> Change:
        self.total += sum(fact_of(record))
        return Change(opened=[f"~{self.total}"], events=[Overflow(self.total)]) if self.total > 10 else NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed(self.total)

    def restore(self, snapshot: Any) -> None:
        self.total = snapshot or 0


class Overflows:
    """A toy fold that follows another one, and takes in users' records with a flag of 64."""

    KEY: Final = "overflows"
    TOPICS: Final = ()
    FLAGS: Final = 64

    def __init__(self) -> None:
        self.seen: list[int] = []

    def apply(self, record: Stored) -> Change:
        self.seen.append(record.position)
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        totals = [event.total for event in change.events if isinstance(event, Overflow)]
        self.seen += totals
        return Change(ended=["~old"]) if totals else NO_CHANGE

    def freeze(self) -> Iterator[bytes]:
        return packed(self.seen)

    def restore(self, snapshot: Any) -> None:
        self.seen = snapshot or []


def folds() -> tuple[FoldRegistry, Sum, Overflows]:
    numbers, overflows = Sum(), Overflows()
    return FoldRegistry((numbers, overflows)), numbers, overflows


def test_a_fold_takes_in_the_records_of_its_topics_and_others_follow_its_changes() -> None:
    registry, numbers, overflows = folds()
    assert registry.apply(fact(SUMS, [4, 5])) == NO_CHANGE
    assert registry.apply(fact("%sys%of-a-newer-broker", [100])) == NO_CHANGE
    assert registry.changes == 0
    change = registry.apply(fact(SUMS, [3]))
    assert (list(change.opened), list(change.ended), registry.changes) == (["~12"], ["~old"], 1)
    assert (numbers.total, overflows.seen) == (12, [12])


def test_a_users_record_goes_to_the_folds_of_its_flags_alone() -> None:
    registry, numbers, overflows = folds()
    for position, flag in ((7, 64), (8, 4), (9, 65)):
        registry.apply(Stored(position, 0, "t", 0, flag, b"", 0, b""))
    assert (numbers.total, overflows.seen) == (0, [7, 9])


def test_a_snapshot_brings_every_fold_back_and_nothing_of_what_came_after_it() -> None:
    registry, _, _ = folds()
    registry.apply(fact(SUMS, [4, 9]))
    frozen = registry.freeze()
    registry.apply(fact(SUMS, [1]))
    snapshot = b"".join(frozen)
    other, numbers, overflows = folds()
    other.apply(fact(SUMS, [1000]))
    other.restore(snapshot)
    assert (numbers.total, overflows.seen) == (13, [13])
    assert other.snapshot() == snapshot
    other.restore(b"")
    assert (numbers.total, overflows.seen) == (0, [])


def test_a_fold_that_the_snapshot_does_not_know_begins_empty_and_one_that_nobody_has_is_passed_over() -> None:
    registry, numbers, overflows = folds()
    overflows.seen = [1]
    registry.restore(msgpack.packb({"sum": 5, "of a newer broker": {}}))
    assert (numbers.total, overflows.seen) == (5, [])


def test_two_folds_of_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="two folds have one key"):
        FoldRegistry((Sum(), Sum()))


@given(st.lists(st.integers(0, 30)), st.integers(1, 60))
def test_parts_are_neighbours_and_hold_as_much_as_they_may(sizes: list[int], bytes_max: int) -> None:
    parts = [list(part) for part in in_parts(sizes, lambda size: size, bytes_max)]
    assert [size for part in parts for size in part] == sizes
    for part, following in zip(parts, [*parts[1:], [bytes_max + 1]], strict=False):
        assert len(part) == 1 or sum(part) <= bytes_max
        assert sum(part) + following[0] > bytes_max
