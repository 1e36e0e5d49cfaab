"""What one node's core wants done, event by event; whole groups are in ``tests/simulation/test_rafts.py``."""

from __future__ import annotations

import random

from broker.replica.core import Core
from broker.replica.events import Durable, Ended, Event, Ready, Received, Role, RoleKind, Tick, Timing
from broker.replica.log_face import HardState
from broker.replica.own_log import OwnLog
from penstock.protocol.requests.replicas import AskVote, EpochAt, Member, Members, MembersAt, TakeEntries, Taken, Vote

GROUP = Members(tuple(Member(node, node) for node in "abc"))


class Bench:
    """One core, and time."""

    def __init__(self, end: int = 100, committed: int = 50, mark: int = 0) -> None:
        log = OwnLog(end, end, committed, [EpochAt(1, 0)], [MembersAt(-1, GROUP)])
        self.now = 0.0
        self.core = Core(HardState("c", "a", "a", 1, "", mark), log, Timing(), random.Random(1), 0.0)

    def step(self, event: Event, after_s: float = 0.0) -> Ready:
        self.now += after_s
        self.core.step(event, self.now)
        return self.core.take_ready()

    def hear(self, node: str, message: AskVote | Vote | TakeEntries | Taken) -> Ready:
        return self.step(Received(node, node, message))


def entries(position: int, end: int, *, before: int = 1, committed: int = 0, epoch: int = 2) -> TakeEntries:
    begun = (EpochAt(epoch, position),) if before < epoch and end > position else ()
    return TakeEntries(epoch, "b", position, before, end, committed, 7, begun)


def test_a_vote_leaves_when_it_is_saved_and_is_not_saved_again() -> None:
    bench = Bench()
    ready = bench.hear("b", AskVote(2, "b", 1, 100, False))
    assert ready.save == HardState("c", "a", "a", 2, "b")
    assert [to.message for to in ready.after_save] == [Vote(2, True, False)]
    assert ready.send == ()
    ready = bench.hear("b", AskVote(2, "b", 1, 100, False))
    assert ready.save is None
    assert [to.message for to in ready.send] == [Vote(2, True, False)]
    assert [to.message for to in bench.hear("c", AskVote(2, "c", 1, 100, False)).send] == [Vote(2, False, False)]


def test_a_pre_vote_promises_nothing() -> None:
    bench = Bench()
    ready = bench.hear("b", AskVote(2, "b", 1, 100, True))
    assert ready.save is None
    assert [to.message for to in ready.send] == [Vote(2, True, True)]
    assert [to.message for to in bench.hear("b", AskVote(2, "b", 1, 90, True)).send] == [Vote(1, False, True)]


def test_entries_are_answered_for_when_the_disk_has_them() -> None:
    bench = Bench()
    ready = bench.hear("b", entries(100, 130))
    assert [one.end for one in ready.take] == [130]
    assert ready.after_save == ready.send == ()
    ready = bench.step(Durable(130))
    assert [to.message for to in ready.send] == [Taken(2, 130, 7)]
    assert bench.step(Tick(), 0.06).save == HardState("c", "a", "a", 2, "", 130)


def test_a_sign_of_life_is_answered_at_once_with_what_is_the_leaders() -> None:
    bench = Bench()
    ready = bench.hear("b", entries(70, 70, committed=90))
    assert [to.message for to in ready.after_save] == [Taken(2, 70, 7)]
    assert ready.committed == 70  # the rest of the log may be another's


def test_what_the_leader_has_not_is_cut_before_its_entries_are_written() -> None:
    bench = Bench()
    ready = bench.hear("b", entries(70, 90))
    assert ready.cut_at == 70
    assert [one.end for one in ready.take] == [90]
    assert bench.core.log.end == 90
    ready = bench.hear("b", entries(70, 80))  # an old one again
    assert ready.cut_at is None
    assert ready.take == ()


def test_a_log_that_differs_says_where_the_leader_may_look() -> None:
    bench = Bench()
    assert [to.message for to in bench.hear("b", entries(300, 300)).after_save] == [Taken(2, 50, 7, 100)]
    assert [to.message for to in bench.hear("b", entries(90, 90, before=2)).send] == [Taken(2, 50, 7, 50)]


def test_a_disk_without_room_takes_back_what_it_was_given() -> None:
    bench = Bench()
    bench.hear("b", entries(100, 130))
    bench.step(Ended(100))
    ready = bench.hear("b", entries(130, 160, before=2))
    assert [to.message for to in ready.send] == [Taken(2, 100, 7, 100)]


def test_an_older_leader_hears_of_the_epoch_and_a_newer_one_is_followed() -> None:
    bench = Bench()
    bench.hear("b", entries(100, 100, epoch=5))
    ready = bench.hear("c", entries(100, 100, epoch=4))
    assert [to.message for to in ready.send] == [Taken(5, 0, 7)]
    assert ready.role == Role(RoleKind.FOLLOWER, 5, "b")


def test_an_election_takes_a_question_first_then_a_saved_vote_for_itself() -> None:
    bench = Bench()
    ready = bench.step(Tick(), 0.4)
    assert ready.role.kind is RoleKind.FOLLOWER
    for _ in range(5):
        ready = bench.step(Tick(), 0.4)
        if ready.send:
            break
    assert [to.message for to in ready.send] == [AskVote(2, "a", 1, 100, True)] * 2
    ready = bench.hear("b", Vote(2, True, True))
    assert ready.save == HardState("c", "a", "a", 2, "a")
    assert [to.message for to in ready.after_save] == [AskVote(2, "a", 1, 100, False)] * 2
    assert bench.hear("b", Vote(2, True, True)).role.kind is RoleKind.CANDIDATE  # an old answer
    ready = bench.hear("c", Vote(2, True, False))
    assert ready.role == Role(RoleKind.LEADER, 2, "a")
    assert bench.core.refusal(bench.now) == ""


def test_a_node_below_its_mark_is_level_with_a_leader_that_knows_all_that_is_committed() -> None:
    bench = Bench(mark=120)
    assert not bench.core.is_fit
    assert [to.message for to in bench.hear("b", AskVote(2, "b", 1, 200, False)).after_save] == [Vote(2, False, False)]
    bench.hear("b", entries(100, 100, committed=100))
    assert not bench.core.is_fit  # what the leader knows may be of an older epoch
    bench.hear("b", entries(100, 130))
    bench.step(Durable(130))
    bench.hear("b", entries(130, 130, before=2, committed=130))
    assert bench.core.is_fit
