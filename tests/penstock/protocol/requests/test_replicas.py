"""What nodes of a group say to each other, as the first of them said it."""

from __future__ import annotations

from penstock.protocol.requests import replicas
from penstock.protocol.requests.replicas import (
    AddReplica,
    AskVote,
    DescribeReplicas,
    EpochAt,
    FetchLog,
    ForceLeader,
    LogStretch,
    Member,
    Members,
    MembersAt,
    MoveLeader,
    RemoveReplica,
    ReplicaHello,
    ReplicaRow,
    Replicas,
    ReplicaWelcome,
    SetCopies,
    SetRole,
    TakeEntries,
    TakeLead,
    Taken,
    Vote,
)
from penstock.protocol.requests.request import Done
from tests.penstock.protocol.requests.first_frames import answered, asked, codes


def test_codes_never_change() -> None:
    assert codes(replicas) == {
        130: "ReplicaHello",
        131: "AskVote",
        132: "TakeEntries",
        134: "FetchLog",
        135: "DescribeReplicas",
        136: "AddReplica",
        137: "SetRole",
        138: "RemoveReplica",
        139: "MoveLeader",
        140: "ForceLeader",
        141: "TakeLead",
        142: "SetCopies",
    }


def test_nodes_greet_each_other() -> None:
    hello = ReplicaHello("c", "g", "b", "u2", "host-b:1", "host-b:2", ("host-b:3",), b"nonce")
    assert asked(130, "c", "g", "b", "u2", "host-b:1", "host-b:2", ["host-b:3"], b"nonce") == hello
    welcome = ReplicaWelcome("c", "a", "u1", "host-a:1", "host-a:2", ("host-a:3",))
    assert answered(ReplicaHello, "c", "a", "u1", "host-a:1", "host-a:2", ["host-a:3"]) == welcome


def test_a_node_asks_for_some_of_the_log() -> None:
    assert asked(134, 900, 1000) == FetchLog(900, 1000)
    assert answered(FetchLog, 900, 6, 0, 2000, body=b"frames") == LogStretch(900, 6, 0, 2000, b"frames")
    assert asked(134, 900, 1000, True) == FetchLog(900, 1000, is_raw=True)
    assert answered(FetchLog, 900, 0, 0, 2000, True, body=b"raw") == LogStretch(900, 0, 0, 2000, b"raw", is_raw=True)


def test_operators_ask_who_is_there_and_change_it() -> None:
    assert asked(135) == DescribeReplicas()
    rows = [["a", "u1", "host:1", True, "host:2", 950, 0.0], ["b", "u2", "host:3", False]]
    known = (ReplicaRow("a", "u1", "host:1", True, "host:2", 950, 0.0), ReplicaRow("b", "u2", "host:3", False))
    told = answered(DescribeReplicas, "group", "a", "leader", 7, "a", 900, 950, 2, rows)
    assert told == Replicas("group", "a", "leader", 7, "a", 900, 950, 2, known)
    assert asked(136, "b", "u2", "host:3") == AddReplica("b", "u2", "host:3")
    assert (asked(137, "b", True), asked(138, "b")) == (SetRole("b", True), RemoveReplica("b"))
    assert (asked(139, "b"), asked(140, ["a"])) == (MoveLeader("b"), ForceLeader(("a",)))
    assert asked(142, 2) == SetCopies(2)


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
