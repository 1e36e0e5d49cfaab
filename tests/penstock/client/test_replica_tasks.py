"""What administrators ask of a group of copies: who is asked, what is made of the answers, who is ordered."""

from __future__ import annotations

import pytest

from penstock.client.replica_tasks import (
    ReplicaGroup,
    demote_replica,
    force_leader,
    move_leader,
    promote_replica,
    remove_replica,
    replace_replica,
    replicas,
    set_copies,
)
from penstock.errors import InvalidRequest, NoQuorum, NoRoute, NotLeader, Unavailable
from penstock.protocol.requests.replicas import ForceLeader, MoveLeader, RemoveReplica, SetCopies, SetRole
from penstock.protocol.requests.routes import BrokerRoute
from tests.penstock.client.replica_scene import END, Cluster, follower, leader, row

A, B, C = row("a"), row("b"), row("c", END - 700, behind_s=4.0)
NEW = row("d", voter=False)
BC = (B._replace(is_voter=False), C._replace(is_voter=False))


def three() -> Cluster:
    return Cluster({"a": leader(A, B, C), "b": follower("b", A, B, C, repaired=2), "c": follower("c", A, B, C)})


def seen(cluster: Cluster, **more: str) -> ReplicaGroup:
    [group] = cluster.run(replicas(**more))
    return group  # type: ignore[no-any-return]


def test_the_leader_says_how_far_all_are_and_each_how_its_copy_is() -> None:
    group = seen(three())
    assert (group.leader, group.epoch, group.majority, [one.role for one in group.nodes]) == (
        "a",
        5,
        2,
        ["leader", "voter", "voter"],
    )
    assert [(one.behind, one.behind_s, one.is_level) for one in group.nodes] == [(0, 0, True)] * 2 + [(700, 4, False)]
    assert [one.repaired for one in group.nodes] == [0, 2, 0]


def test_while_nobody_leads_the_others_say_what_they_know() -> None:
    group = seen(Cluster({"b": follower("b", A, B, C), "c": follower("c", A, B, C, end=END - 700)}))
    assert (group.leader, group.end) == ("", END)
    assert [one.is_away for one in group.nodes] == [True, False, False]
    assert [one.behind for one in group.nodes] == [None] * 3


def test_a_node_is_found_by_an_address_where_no_name_server_is() -> None:
    cluster = three()
    cluster.routes = ()
    assert [seen(cluster, address=f"{node}:10911").leader for node in "abc"] == ["a"] * 3


def test_a_group_of_which_no_node_answers_is_an_error_and_so_is_an_unknown_broker() -> None:
    with pytest.raises(Unavailable, match="a:10911"):
        Cluster({}).run(replicas())
    with pytest.raises(NoRoute, match="no broker 'x'"):
        three().run(replicas("x"))
    cluster = three()
    cluster.routes = (*cluster.routes, BrokerRoute("other", "b:10911", 1))
    with pytest.raises(InvalidRequest, match="say at which broker"):
        cluster.run(set_copies(2))


def test_observers_become_voters_one_by_one_and_two_voters_must_be_meant() -> None:
    cluster = Cluster({"a": leader(A, *BC)})
    cluster.run(promote_replica(["b", "c"]))
    cluster.run(promote_replica("b"))
    cluster.run(promote_replica("b", yes_no_failover=True))
    allowed = [request.allows_two for _, request in cluster.ordered if isinstance(request, SetRole)]
    assert allowed == [True, True, False, True]
    with pytest.raises(InvalidRequest, match="no node x"):
        cluster.run(promote_replica(["b", "x"]))
    assert len(cluster.ordered) == 4, "nothing is done by halves"


def test_orders_go_to_the_leader_and_follow_it_once() -> None:
    cluster = three()
    cluster.refusals["a:10911"] = NotLeader("b leads", hint="b:10911")
    cluster.run(demote_replica("c"))
    assert [address for address, _ in cluster.ordered] == ["a:10911", "b:10911"]
    cluster.run(remove_replica("c", yes_no_failover=True))
    cluster.run(set_copies(2))
    assert [request for _, request in cluster.ordered[2:]] == [RemoveReplica("c", True), SetCopies(2)]
    with pytest.raises(NoQuorum, match="a do not answer"):
        Cluster({"b": follower("b", A, B, C), "c": follower("c", A, B, C)}).run(set_copies(2))


def test_a_new_node_takes_the_place_of_a_lost_one_and_the_call_may_be_repeated() -> None:
    lost = C._replace(heard_s=900.0)
    cluster = Cluster({"a": leader(A, B, lost, NEW)})
    cluster.run(replace_replica("c", "d"))
    assert [request for _, request in cluster.ordered] == [SetRole("d", True, True), RemoveReplica("c", True)]
    cluster = Cluster({"a": leader(A, B, NEW._replace(is_voter=True))})
    cluster.run(replace_replica("c", "d"))
    assert cluster.ordered == []
    with pytest.raises(InvalidRequest, match="no node d"):
        three().run(replace_replica("c", "d"))


def test_the_lead_moves_to_a_voter_only() -> None:
    cluster = Cluster({"a": leader(A, B, NEW)})
    cluster.run(move_leader("b"))
    cluster.run(move_leader("a"))
    assert cluster.ordered == [("a:10911", MoveLeader("b"))]
    with pytest.raises(InvalidRequest, match="cannot lead") as refused:
        cluster.run(move_leader("d"))
    assert "promote d" in refused.value.hint


def test_only_the_node_with_the_newest_log_is_forced_and_only_the_silent_are_lost() -> None:
    five = [row(name) for name in "abcde"]
    cluster = Cluster({"d": follower("d", *five, epoch=4), "e": follower("e", *five, end=END - 700)})
    cluster.routes = tuple(BrokerRoute("broker", f"{node}:10911", 1) for node in "de")
    with pytest.raises(InvalidRequest, match="node e has log that d lacks"):
        cluster.run(force_leader("d", ["a", "b", "c"]))
    with pytest.raises(InvalidRequest, match="d answers"):
        cluster.run(force_leader("e", ["a", "b", "c", "d"]))
    with pytest.raises(InvalidRequest, match="a does not answer"):
        cluster.run(force_leader("a", ["b", "c"]))
    cluster.run(force_leader("e", ["a", "b", "c"]))
    assert cluster.ordered == [("e:10911", ForceLeader(("a", "b", "c")))]
