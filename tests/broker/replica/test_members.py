"""The fold of a group's members, and which change of them may be made."""

from __future__ import annotations

import msgpack
import pytest

from broker.replica.members import NO_MEMBERS, MembersFold, why_not, with_member, without_member
from penstock.protocol.requests.replicas import Member, Members, MembersAt
from tests.broker.facts import take

THREE = Members(tuple(Member(node, node * 2) for node in "abc"))
X = Member("x", "xx", "host:10912", False)


def test_the_latest_record_counts_and_a_snapshot_has_it() -> None:
    fold, other = MembersFold(), MembersFold()
    assert fold.now == NO_MEMBERS
    other.restore(msgpack.unpackb(b"".join(fold.freeze())))
    assert other.now == NO_MEMBERS
    grown = with_member(THREE, X)
    take(fold, fold.fact(THREE), 70)
    take(fold, fold.fact(grown), 90)
    assert fold.now == MembersAt(90, grown)
    other.restore(msgpack.unpackb(b"".join(fold.freeze())))
    assert other.now == fold.now


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (with_member(THREE, X), ""),
        (with_member(THREE, X._replace(is_voter=True)), ""),
        (with_member(THREE, Member("a", "aa", "", False)), ""),
        (without_member(THREE, "a"), ""),
        (without_member(without_member(THREE, "a"), "b"), "one node"),
        (with_member(without_member(THREE, "a"), X), "one node"),
        (with_member(THREE, Member("a", "new")), "new node"),
        (THREE._replace(copies=4), "cannot have 4 copies"),
        (Members((X,)), "needs a voter"),
    ],
)
def test_one_node_is_changed_at_a_time(after: Members, why: str) -> None:
    assert why in why_not(THREE, after)
    assert bool(why) == bool(why_not(THREE, after))
