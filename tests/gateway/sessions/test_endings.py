"""What subscriptions of a session had delivered when they ended."""

from __future__ import annotations

from gateway.sessions.endings import ENDED_MAX, Ended, Standing, have_delivered, still_needed, without
from gateway.sessions.subscriptions import Redo


def test_one_that_has_ended_has_delivered_what_it_matches_but_for_what_it_left() -> None:
    ended = Ended("b", "f/+", 10, 20, (Redo(5, 15, "+/a"),), 0)
    delivered = [at for at in range(8, 23) if ended.has_delivered(at, "f/a")]
    assert delivered == list(range(10, 16))
    assert [at for at in range(8, 23) if ended.has_delivered(at, "f/b")] == list(range(10, 21))
    assert not ended.has_delivered(12, "g/a")


def test_what_one_that_has_ended_had_delivered_counts_for_younger_ones_that_are_to_come_to_it() -> None:
    ended = Ended("b", "f/+", 10, 20, (), 1)
    assert Standing("b", "#", 1, 19).is_to_come_to(ended)
    assert not Standing("b", "#", 1, 20).is_to_come_to(ended)
    assert not Standing("b", "#", 0, 19).is_to_come_to(ended)
    assert not Standing("c", "#", 1, 0).is_to_come_to(ended)
    assert not Standing("b", "g/#", 1, 0).is_to_come_to(ended)


def test_of_those_that_have_ended_the_latest_are_kept_among_those_that_count() -> None:
    count = [Ended("b", "f/+", 10, number, (), 0) for number in range(20, 21 + ENDED_MAX)]
    others = [Ended("c", "f/+", 10, number, (), 0) for number in range(20, 21 + ENDED_MAX)]
    assert still_needed([*count, *others], [Standing("b", "#", 0, 0), Standing("b", "#", 1, 30)]) == count[1:]
    assert still_needed(others, []) == []


def test_one_counts_for_no_older_one_and_moves_up_when_an_older_one_leaves() -> None:
    ended = [Ended("b", "f/+", 10, 20, (), 2), Ended("c", "f/+", 10, 20, (), 2)]
    assert have_delivered(ended, "b", 2, 15, "f/a")
    assert not have_delivered(ended, "b", 1, 15, "f/a")
    assert not have_delivered(ended, "b", 2, 21, "f/a")
    assert have_delivered(without(ended, "b", 1), "b", 1, 15, "f/a")
    assert not have_delivered(without(ended, "b", 2), "b", 1, 15, "f/a")
    assert not have_delivered(without(ended, "b", 1), "c", 1, 15, "f/a")
