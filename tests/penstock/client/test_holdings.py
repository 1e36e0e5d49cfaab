"""What a member holds, what is lost, what a commit stores."""

from __future__ import annotations

import pytest

from penstock.client.holdings import Holdings, fenced_if_lost
from penstock.client.positions import Position
from penstock.errors import Fenced
from penstock.protocol.received import queue_named
from penstock.protocol.requests.groups import Assignment, QueueOffset


def assigned(generation: int, **offsets: int) -> Assignment:
    return Assignment(generation, tuple(QueueOffset(f"{queue}:0", offset) for queue, offset in offsets.items()))


def holding(**offsets: int) -> tuple[Holdings[Position], list[str]]:
    dropped: list[str] = []
    holdings: Holdings[Position] = Holdings(lambda position: dropped.append(position.queue.name))
    for new in holdings.apply(assigned(1, **offsets)):
        position = Position(queue_named("b", new.queue), committed=new.offset, committing=new.offset)
        position.begin(new.offset)
        holdings.held[new.queue] = position
    return holdings, dropped


def test_an_assignment_drops_what_is_gone_and_names_what_is_new() -> None:
    holdings, dropped = holding(a=1, b=2)
    new = holdings.apply(assigned(2, b=2, c=3))
    assert (dropped, new, holdings.generation) == (["a:0"], [QueueOffset("c:0", 3)], 2)
    assert holdings.take_lost() == []


def test_what_was_handed_out_and_not_committed_is_lost_and_told_once() -> None:
    holdings, _dropped = holding(a=1, b=2)
    holdings.held["a:0"].handed_out = 5
    holdings.apply(assigned(2))
    assert holdings.take_lost() == ["a:0"]
    assert holdings.take_lost() == []


def test_what_was_about_to_go_is_dropped_where_the_broker_has_forgotten_us() -> None:
    holdings, dropped = holding(a=1, b=2)
    holdings.held["a:0"].leaving = True
    holdings.drop_leaving()
    assert (dropped, list(holdings.held)) == (["a:0"], ["b:0"])


def test_what_was_lost_and_has_come_back_is_not_what_was_kept() -> None:
    holdings, _dropped = holding(a=1, b=2)
    before = list(holdings.held.values())
    before[0].handed_out = 5
    holdings.apply(assigned(2, b=2))
    holdings.held["a:0"] = Position(queue_named("b", "a:0"))
    holdings.check_kept("g", before[1:])
    with pytest.raises(Fenced, match="lost a:0"):
        holdings.check_kept("g", before)
    assert holdings.take_lost() == [], "it was told"


def test_another_committed_offset_begins_anew() -> None:
    holdings, dropped = holding(a=1)
    assert holdings.apply(assigned(2, a=7)) == [QueueOffset("a:0", 7)]
    assert dropped == ["a:0"]


def test_our_own_commit_on_its_way_is_nobody_elses() -> None:
    holdings, dropped = holding(a=1)
    holdings.held["a:0"].handed_out = 7
    holdings.storing(holdings.wanted())
    assert holdings.apply(assigned(2, a=7)) == []
    assert dropped == []


def test_an_assignment_that_is_older_than_our_last_commits_is_ours_and_one_from_before_it_was_asked_for_is_not() -> (
    None
):
    holdings, dropped = holding(a=1)
    holdings.asking()
    for offset in (3, 5):
        holdings.held["a:0"].handed_out = offset
        holdings.stored(wanted := holdings.wanted())
        assert list(wanted.values()) == [offset]
    for generation, offset in enumerate((1, 3, 5), 2):
        assert holdings.apply(assigned(generation, a=offset)) == []
    assert (dropped, holdings.held["a:0"].handed_out) == ([], 5)
    holdings.asking()
    assert holdings.apply(assigned(9, a=3)) == [QueueOffset("a:0", 3)], "somebody has set it back"


def test_a_commit_stores_what_was_handed_out_once() -> None:
    holdings, _dropped = holding(a=1, b=2)
    holdings.held["a:0"].handed_out = 7
    wanted = holdings.wanted()
    assert holdings.storing(wanted) == (QueueOffset("a:0", 7),)
    holdings.stored(wanted)
    assert holdings.wanted() == {}


def test_a_queue_that_goes_while_its_commit_is_on_its_way_is_lost_only_if_that_fails() -> None:
    for fails in (False, True):
        holdings, _dropped = holding(a=1)
        holdings.held["a:0"].handed_out = 7
        wanted = holdings.wanted()
        holdings.storing(wanted)
        holdings.drop_all()
        (holdings.not_stored if fails else holdings.stored)(wanted)
        assert holdings.take_lost() == (["a:0"] if fails else [])


def test_a_commit_of_which_nothing_is_known_stays_wanted() -> None:
    holdings, _dropped = holding(a=1)
    holdings.held["a:0"].handed_out = 7
    wanted = holdings.wanted()
    holdings.storing(wanted)
    holdings.not_stored(wanted)
    assert holdings.wanted() == wanted
    holdings.drop_all()
    assert holdings.take_lost() == ["a:0"]


def test_a_commit_of_chosen_places_moves_only_forward_where_that_is_meant() -> None:
    holdings, _dropped = holding(a=5)
    for offset, forward, stored in ((8, True, 8), (7, True, None), (6, False, 6), (7, True, 7)):
        wanted = holdings.chosen("g", {"a:0": offset}, forward=forward)
        assert list(wanted.values()) == ([] if stored is None else [stored])
        holdings.storing(wanted)
        holdings.stored(wanted)


def test_a_commit_of_a_queue_that_is_not_held_is_fenced_and_told_once() -> None:
    holdings, _dropped = holding(a=1, b=2)
    holdings.held["a:0"].handed_out = 5
    holdings.apply(assigned(2, b=2))
    with pytest.raises(Fenced, match="lost a:0 before the commit"):
        holdings.chosen("g", {"a:0": 3, "b:0": 3}, forward=False)
    assert holdings.take_lost() == []


def test_lost_queues_are_fenced_by_name() -> None:
    fenced_if_lost("g", [])
    with pytest.raises(Fenced, match="this member of group g lost a, b before the commit"):
        fenced_if_lost("g", ["b", "a", "b"])


def test_the_groups_filter_counts_for_all_queues_from_the_assignment_on() -> None:
    holdings, _dropped = holding(a=1)
    holdings.apply(Assignment(2, (QueueOffset("a:0", 1),), filter="x = 1"))
    assert (holdings.filter, holdings.held["a:0"].filter) == ("x = 1", "x = 1")
