"""Twin of broker/shares/fold.py."""

from __future__ import annotations

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from broker.filters.fold import CLOSE, OPEN, Filters, OwnerEnded, ShareEnded
from broker.shares.fold import END, Settled, Shares
from broker.store.records import Change
from tests.broker.facts import take

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=25)


@given(st.integers(0, 30), RANGES)
def test_settled_offsets_are_exactly_those_that_were_added_and_all_below_the_floor(floor: int, added: list) -> None:
    settled, model = Settled(floor), set(range(floor))
    for first, count in added:
        settled.add(first, first + count)
        model |= set(range(first, first + count))
    assert {offset for offset in range(100) if offset in settled} == model
    bounds = [one for pair in zip(settled.starts, settled.ends, strict=True) for one in pair]
    assert bounds == sorted(set(bounds))
    assert all(settled.floor < start for start in settled.starts)


@given(st.integers(0, 30), RANGES, st.integers(0, 80))
def test_the_next_open_stretch_has_no_settled_offset_in_it(floor: int, added: list, at: int) -> None:
    settled = Settled(floor)
    for first, count in added:
        settled.add(first, first + count)
    first, end = settled.open_from(at)
    assert first >= at
    assert all(offset in settled for offset in range(at, first))
    assert not any(offset in settled for offset in range(first, min(end, 100)))
    assert end == END or end in settled


@given(st.integers(0, 30), RANGES, st.integers(0, 80), st.integers(0, 80))
def test_the_open_offsets_of_a_stretch_are_counted(floor: int, added: list, first: int, end: int) -> None:
    settled = Settled(floor)
    for begin, count in added:
        settled.add(begin, begin + count)
    assert settled.count_open(first, end) == len([one for one in range(first, end) if one not in settled])


def test_a_share_begins_once_and_is_forgotten_when_it_ends() -> None:
    shares = Shares()
    take(shares, Shares.beginning("$share/g/a", 100), 1000)
    take(shares, Shares.settling("$share/g/a", [(100, 103), (105, 106), (40, 50)], 0), 2000)
    take(shares, Shares.beginning("$share/g/a", 7), 1000)
    settled = shares.get("$share/g/a")
    assert settled is not None
    assert (settled.floor, settled.starts, settled.ends) == (103, [105], [106])
    shares.follow(Change(events=[ShareEnded("$share/g/a")]))
    assert shares.get("$share/g/a") is None
    assert (shares.take_ended(), shares.take_ended()) == (["$share/g/a"], [])


def test_what_is_told_of_a_share_that_there_is_not_changes_nothing() -> None:
    shares = Shares()
    take(shares, Shares.settling("$share/g/a", [(1, 2)], 0), 2000)
    shares.follow(Change(events=[ShareEnded("$share/g/a")]))
    assert (len(shares), shares.take_ended()) == (0, [])


def test_a_snapshot_is_the_state_of_its_moment() -> None:
    shares = Shares()
    take(shares, Shares.beginning("$share/g/a", 5), 1000)
    take(shares, Shares.settling("$share/g/a", [(8, 9)], 0), 2000)
    pieces = shares.freeze()
    take(shares, Shares.settling("$share/g/a", [(5, 6)], 0), 2000)
    frozen = msgpack.unpackb(b"".join(pieces))
    assert frozen == [["$share/g/a", 5, [[8, 9]], 1000]]
    again = Shares()
    again.restore(frozen)
    assert again.snapshot() == frozen
    assert shares.snapshot() == [["$share/g/a", 6, [[8, 9]], 1000]]


def position_of(shares: Shares) -> int:
    settled = shares.get("$share/g/a")
    assert settled is not None
    return settled.position


def test_all_before_its_beginning_is_settled_and_later_all_before_a_position_that_only_grows() -> None:
    shares = Shares()
    take(shares, Shares.beginning("$share/g/a", 5), 1000)
    assert position_of(shares) == 1000
    for told, known in ((0, 1000), (3000, 3000), (2000, 3000)):
        take(shares, Shares.settling("$share/g/a", [(7, 8)], told), 4000)
        assert position_of(shares) == known
    take(shares, Shares.settling("$share/g/a", [(8, 9)], 9000)[:-1], 9999)
    assert position_of(shares) == 3000, "an earlier version says no position"


def test_a_snapshot_of_an_earlier_version_knows_no_position() -> None:
    shares = Shares()
    shares.restore([["$share/g/a", 5, [[8, 9]]]])
    assert shares.snapshot() == [["$share/g/a", 5, [[8, 9]], 0]]


def test_groups_that_pop_are_known_with_their_queues_until_these_end_or_are_forgotten() -> None:
    shares = Shares()
    for share in ("$pop/g/a:0", "$pop/g/a:1", "$pop/g/h/a:1", "$share/g/a"):
        take(shares, Shares.beginning(share, 0), 1000)
    restored = Shares()
    restored.restore(shares.snapshot())
    for one in (shares, restored):
        assert one.popping == {"g", "g/h"}
        assert (one.popped_by("g"), one.popped_by("g/h")) == (["$pop/g/a:0", "$pop/g/a:1"], ["$pop/g/h/a:1"])
        one.follow(Change(ended=["a:1"]))
        assert (one.popping, one.popped_by("g"), one.popped_by("g/h")) == ({"g"}, ["$pop/g/a:0"], [])
        take(one, Shares.forgetting("$pop/g/a:0"), 2000)
        assert (one.popping, one.popped_by("g"), one.names) == (set(), [], ["$share/g/a"])


@given(st.integers(0, 30), RANGES, RANGES)
def test_the_floor_with_some_ranges_is_that_which_they_make(floor: int, added: list, more: list) -> None:
    settled = Settled(floor)
    for first, count in added:
        settled.add(first, first + count)
    ranges = sorted([(first, first + count) for first, count in more])
    told = settled.floor_with(ranges)
    for first, end in ranges:
        settled.add(first, end)
    assert told == settled.floor


def test_a_share_holds_its_filter_open_as_long_as_anybody_holds_it() -> None:
    filters = Filters()
    assert take(filters, [OPEN, "gw", ["$share/g/a/+"]]).opened == ["~filter:a/+"]
    assert take(filters, [OPEN, "~session/7", ["$share/g/a/+", "$oshare/g/a/+"]]).opened == []
    assert filters.queues_of("a/b") == ["~filter:a/+"]
    assert (len(filters), filters.held_by("~$share/g/a/+")) == (1, ["a/+"])
    assert take(filters, [CLOSE, "gw", ["$share/g/a/+"]]) == Change(ended=[], events=[])
    restored = Filters()
    restored.restore(filters.snapshot())
    assert restored.snapshot() == filters.snapshot()
    for one in (filters, restored):
        change = one.follow(Change(events=[OwnerEnded("~session/7")]))
        assert change.ended == ["~filter:a/+"]
        assert set(change.events) == {ShareEnded("$share/g/a/+"), ShareEnded("$oshare/g/a/+")}
    assert filters.snapshot() == []
