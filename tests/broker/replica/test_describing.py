"""What a node says of its group, in words and in figures."""

from __future__ import annotations

from broker.replica.describing import described, figures_of
from broker.replica.events import Ended, Tick
from penstock.protocol.requests.replicas import EpochAt, Member, Members, MembersAt, Taken, Vote
from penstock.service.meanings import meaning_of
from tests.broker.replica.test_core import GROUP, Bench, entries

_TICK = Tick()
OBSERVED = Members((*GROUP.nodes, Member("d", "d", "d:10912", is_voter=False)), copies=2)


def leading() -> Bench:
    """One that leads from 100 on, and has been answered by ``b``."""
    bench = Bench()
    bench.core.log.changes.append(MembersAt(-1, OBSERVED))
    while not bench.step(_TICK, 0.4).send:
        pass
    bench.hear("b", Vote(2, True, True))
    bench.hear("b", Vote(2, True, False))
    bench.step(Ended(130, (EpochAt(2, 100),)))
    bench.hear("b", Taken(2, 130, 0))
    bench.hear("c", Taken(2, 40, 0))
    return bench


def test_a_leader_knows_how_far_all_are() -> None:
    bench = leading()
    for _ in range(3):
        bench.step(_TICK, 0.1)
    bench.hear("b", Taken(2, 130, 0))
    said = described(bench.core, "broker", {"b": "b:10911"}, bench.now, damaged=1, repaired=2)
    assert (said.group, said.node, said.role, said.epoch, said.leader, said.copies) == (
        "broker",
        "a",
        "leader",
        2,
        "a",
        2,
    )
    assert (said.committed, said.end, said.last_epoch, said.damaged, said.repaired) == (50, 130, 2, 1, 2)
    assert [(row.node, row.durable) for row in said.rows] == [("a", 100), ("b", 130), ("c", 40), ("d", 0)]
    assert [round(row.heard_s, 3) for row in said.rows[:3]] == [0.0, 0.0, 0.3]
    assert [round(row.behind_s, 3) for row in said.rows[:3]] == [0.0, 0.0, 0.3]
    assert (said.rows[1].clients, said.rows[3].address) == ("b:10911", "d:10912")
    assert said.refusal == ""
    found = figures_of(said)
    assert found['penstock_replica_behind_bytes{node="c"}'] == 90
    assert found["penstock_replica_uncommitted_bytes"] == 80
    assert (found["penstock_replica_leads"], found["penstock_replica_epoch"]) == (1, 2)
    assert [name for name in found if not meaning_of(name.partition("{")[0])] == []


def test_a_follower_knows_whom_it_follows_and_when_it_heard_it() -> None:
    bench = Bench()
    bench.hear("b", entries(100, 130))
    bench.now += 0.2
    said = described(bench.core, "broker", {}, bench.now)
    assert (said.role, said.leader, said.epoch, said.end) == ("follower", "b", 2, 130)
    assert [round(row.heard_s, 3) for row in said.rows] == [-1.0, 0.2, -1.0]
    found = figures_of(said)
    assert (found["penstock_replica_leads"], found["penstock_replica_has_leader"]) == (0, 1)
    assert found['penstock_replica_heard_s{node="b"}'] == said.rows[1].heard_s
    bench.core.log.changes.append(MembersAt(-1, Members((Member("b", "b"),))))
    assert described(bench.core, "broker", {}, bench.now).role == "observer"


def test_a_broker_with_one_copy_has_no_figures_of_copies() -> None:
    bench = Bench()
    bench.core.log.changes.append(MembersAt(-1, Members((Member("a", "a"),))))
    assert figures_of(described(bench.core, "broker", {}, 0.0)) == {}
