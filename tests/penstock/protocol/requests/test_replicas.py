"""What nodes of a group say to each other, as the first of them said it."""

from __future__ import annotations

from penstock.protocol.requests import replicas
from penstock.protocol.requests.replicas import (
    AskVote,
    EpochAt,
    Member,
    Members,
    MembersAt,
    TakeEntries,
    TakeLead,
    Taken,
    Vote,
)
from penstock.protocol.requests.request import Done
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(replicas) == {131: "AskVote", 132: "TakeEntries", 141: "TakeLead"}


def test_a_candidate_says_what_its_log_has() -> None:
    assert asked(131, 7, "a", 6, 900, True) == AskVote(7, "a", 6, 900, True, False)
    assert answered(AskVote, 7, True, True) == Vote(7, True, True)


def test_entries_come_with_the_epochs_and_members_that_begin_in_them() -> None:
    group = [[["a", "u1", "host:1", True], ["b", "u2"]], 2]
    whole = TakeEntries(
        7,
        "a",
        900,
        6,
        950,
        880,
        3,
        (EpochAt(7, 900),),
        (MembersAt(920, Members((Member("a", "u1", "host:1"), Member("b", "u2")), 2)),),
        b"frames",
    )
    assert asked(132, 7, "a", 900, 6, 950, 880, 3, [[7, 900]], [[920, group]], body=b"frames") == whole
    assert answered(TakeEntries, 7, 950, 3) == Taken(7, 950, 3, -1)


def test_a_voter_is_asked_to_lead() -> None:
    assert asked(141, 7) == TakeLead(7)
    assert answered(TakeLead) == Done()


def test_a_majority_is_of_voters() -> None:
    group = Members((Member("a", "1"), Member("b", "2"), Member("x", "3", "", is_voter=False)))
    assert (group.voters, group.majority) == (["a", "b"], 2)
    assert group.is_voter("a")
    assert not group.is_voter("x")
    assert group.get("x") == Member("x", "3", "", is_voter=False)
    assert group.get("y") is None
