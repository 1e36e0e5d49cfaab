"""Up to where enough disks have the log."""

from __future__ import annotations

import pytest

from broker.replica.commit_rule import agreed
from penstock.protocol.requests.replicas import Member, Members


def members(voters: str, observers: str = "", copies: int = 1) -> Members:
    return Members(tuple(Member(node, node, "", node in voters) for node in voters + observers), copies)


@pytest.mark.parametrize(
    ("group", "durable", "point"),
    [
        (members("a"), {"a": 70}, 70),
        (members("ab"), {"a": 70, "b": 30}, 30),
        (members("abc"), {"a": 70, "b": 30, "c": 50}, 50),
        (members("abc"), {"a": 70}, 0),
        (members("abcde"), {"a": 70, "b": 60, "c": 50, "d": 40, "e": 30}, 50),
        (members("a", "x"), {"a": 70, "x": 30}, 70),  # an observer is not counted in a majority
        (members("a", "xy", 2), {"a": 70, "x": 30, "y": 50}, 50),  # but among the copies
        (members("abc", "", 3), {"a": 70, "b": 30, "c": 50}, 30),
        (members("a", "", 2), {"a": 70}, 0),
        (Members(), {}, 0),
    ],
)
def test_a_majority_of_voters_and_enough_copies_have_it(group: Members, durable: dict[str, int], point: int) -> None:
    assert agreed(group, durable) == point
