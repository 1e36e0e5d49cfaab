"""What operators may make of a group, and the words where they may not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.replica.members import why_not, with_member
from broker.replica.membership import forced, with_copies, with_node, with_role, without_node
from penstock.errors import InvalidRequest
from penstock.protocol.requests.replicas import Member, Members

ONE = Members((Member("a", "aa", "a:1"),))
B, C = (Member(node, node * 2, f"{node}:1", is_voter=False) for node in "bc")
THREE = Members((ONE.nodes[0], B._replace(is_voter=True), C._replace(is_voter=True)))


def promoted(members: Members, node: str, *, allows_two: bool = False) -> Members:
    return with_role(members, node, "a", is_voter=True, allows_two=allows_two)


def test_a_group_grows_from_one_node_to_three_voters_one_change_at_a_time() -> None:
    steps = [ONE, with_node(ONE, "b", "bb", "b:1")]
    steps.append(with_node(steps[-1], "c", "cc", "c:1"))
    assert steps[-1].nodes[1:] == (B, C)
    steps.append(promoted(steps[-1], "b", allows_two=True))
    steps.append(promoted(steps[-1], "c"))
    assert steps[-1] == THREE
    assert [why_not(before, after) for before, after in pairwise(steps)] == [""] * 4


def test_what_is_so_already_changes_nothing() -> None:
    assert promoted(THREE, "b") == with_node(THREE, "b", "bb", "b:1") == with_copies(THREE, 1) == THREE


def test_a_node_that_has_moved_keeps_its_role() -> None:
    assert with_node(THREE, "c", "cc", "elsewhere:9").get("c") == Member("c", "cc", "elsewhere:9")


@pytest.mark.parametrize(
    ("wish", "why", "remedy"),
    [
        (lambda: with_node(THREE, "c", "new", "c:1"), "forgotten what it promised", "replica replace c --by c2"),
        (lambda: promoted(with_member(with_member(ONE, B), C), "b"), "less safe than one", "promote b c"),
        (lambda: promoted(with_member(ONE, B), "b"), "less safe than one", "promote b NODE"),
        (lambda: with_role(THREE, "b", "a", is_voter=False), "less safe than one", "--yes-no-failover"),
        (lambda: without_node(THREE, "c", "a"), "less safe than one", "add a voter first"),
        (lambda: with_role(THREE, "a", "a", is_voter=False), "node a leads", "move-leader"),
        (lambda: without_node(THREE, "a", "a"), "node a leads", "move-leader"),
        (lambda: without_node(with_member(ONE, B)._replace(copies=2), "b", "a"), "keeps 2 copies", "replica copies 1"),
        (lambda: promoted(THREE, "d"), "no node d", "a, b, c"),
        (lambda: with_copies(THREE, 4), "1 to 3 copies", ""),
        (lambda: with_role(with_member(ONE, B), "a", "b", is_voter=False), "needs a voter", ""),
        (lambda: forced(THREE, "a", ["b"]), "a and c are a majority", "replica list"),
        (lambda: forced(THREE, "a", ["a", "b"]), "cannot lead and be lost", ""),
        (lambda: forced(THREE, "a", ["b", "d"]), "no node d", "a, b, c"),
    ],
)
def test_what_would_hurt_is_refused_with_what_to_do(wish: Callable[[], Members], why: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        wish()
    assert remedy in refused.value.hint


def test_two_voters_may_be_meant() -> None:
    two = promoted(with_member(ONE, B), "b", allows_two=True)
    assert two.voters == ["a", "b"]
    assert without_node(THREE, "c", "a", allows_two=True).voters == ["a", "b"]


def test_a_forced_leader_has_with_it_all_that_is_left() -> None:
    assert forced(THREE._replace(copies=3), "b", ["a", "c"]) == Members((Member("b", "bb", "b:1"),), 1)
    five = Members((*THREE.nodes, Member("d", "dd"), Member("e", "ee", "", False)), 2)
    assert forced(five, "e", ["a", "b"]).voters == ["c", "d", "e"]
    assert forced(five, "d", ["a", "b"]).voters == ["c", "d"]
    assert forced(five, "d", ["a", "b"]).copies == 2
