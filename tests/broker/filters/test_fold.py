from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.filters.fold import CLOSE, OPEN, Filters
from broker.store.records import NO_CHANGE, Change
from tests.broker.facts import take

FILTERS = ["a", "a/+", "+/b", "#", "a/#", "$x/#", "a/b"]
NAMES = ["a", "a/b", "b/b", "$x/b", "c"]


def test_a_queue_begins_with_the_first_owner_and_ends_with_the_last() -> None:
    filters = Filters()
    assert take(filters, [OPEN, "g", ["a", "b"]]) == Change(opened=["~filter:a", "~filter:b"])
    assert take(filters, [OPEN, "h", ["a"]]) == Change(opened=[])
    assert take(filters, [CLOSE, "g", ["a", "never", "b"]]).ended == ["~filter:b"]
    assert take(filters, [CLOSE, "h", ["a"]]).ended == ["~filter:a"]
    assert (len(filters), filters.owners) == (0, [])


def test_the_owners_of_a_filter_are_told() -> None:
    filters = Filters()
    take(filters, [OPEN, "g", ["a"]])
    assert (filters.owners_of("a"), filters.owners_of("b")) == (["g"], [])
    take(filters, [OPEN, "h", ["a"]])
    assert filters.owners_of("a") == ["g", "h"]


def test_an_action_of_a_newer_broker_changes_nothing() -> None:
    assert take(Filters(), ["pause", "g", ["a"]]) == NO_CHANGE


def test_a_shared_subscription_of_another_one_was_never_open() -> None:
    filters = Filters()
    nested = ["$share/g/$share/h", "$share/g/$oshare/h/x", "a"]
    assert take(filters, [OPEN, "g", nested]) == Change(opened=["~filter:a"])
    assert take(filters, [CLOSE, "g", nested]).ended == ["~filter:a"]


def test_a_name_is_matched_by_what_is_open() -> None:
    filters = Filters()
    take(filters, [OPEN, "g", FILTERS])
    assert filters.queues_of("a/b") == [f"~filter:{one}" for one in ("#", "+/b", "a/#", "a/+", "a/b")]
    take(filters, [CLOSE, "g", ["#", "a/b"]])
    assert filters.queues_of("a/b") == [f"~filter:{one}" for one in ("+/b", "a/#", "a/+")]


def test_where_an_owner_without_a_lease_opened_a_filter_outlives_a_snapshot_and_ends_with_the_close() -> None:
    filters, again = Filters(), Filters()
    take(filters, [OPEN, "g", ["a"]], 10)
    take(filters, [OPEN, "~session/5", ["a", "b"]], 20)
    take(filters, [OPEN, "~session/5", ["a", "c"]], 30)
    again.restore(filters.snapshot())
    for one in (filters, again):
        assert [one.begun("~session/5", filter) for filter in "abcd"] == [20, 20, 30, 0]
        assert one.begun("g", "a") == 0
        take(one, [CLOSE, "~session/5", ["a", "b"]])
        take(one, [OPEN, "~session/5", ["b"]], 40)
        assert [one.begun("~session/5", filter) for filter in "abc"] == [0, 40, 30]
    assert filters.snapshot() == again.snapshot()


actions = st.tuples(
    st.sampled_from([OPEN, CLOSE]), st.sampled_from("ghi"), st.lists(st.sampled_from(FILTERS), max_size=4)
)


@given(st.lists(actions, max_size=30), st.lists(actions, max_size=10))
def test_a_restored_snapshot_is_the_replay(
    before: list[tuple[str, str, list[str]]], after: list[tuple[str, str, list[str]]]
) -> None:
    replayed, restored = Filters(), Filters()
    for action in before:
        take(replayed, list(action))
    restored.restore(replayed.snapshot())
    for action in after:
        assert take(replayed, list(action)) == take(restored, list(action))
    assert replayed.snapshot() == restored.snapshot()
    assert [replayed.queues_of(name) for name in NAMES] == [restored.queues_of(name) for name in NAMES]
    assert {owner: set(replayed.held_by(owner)) for owner in replayed.owners} == {
        owner: set(restored.held_by(owner)) for owner in restored.owners
    }
