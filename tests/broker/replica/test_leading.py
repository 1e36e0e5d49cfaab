"""What a leader knows of its group: rounds that are answered, and refusals with their reasons."""

from __future__ import annotations

from broker.replica.events import Read, Timing
from broker.replica.leading import Leading
from broker.replica.own_log import OwnLog
from penstock.protocol.requests.replicas import EpochAt, Member, Members, MembersAt, Taken

GROUP = Members(tuple(Member(node, node) for node in "abc"))


def leading() -> tuple[Leading, OwnLog]:
    log = OwnLog(100, 100, 80, [EpochAt(1, 0)], [MembersAt(-1, GROUP)])
    lead = Leading("a", 2, log, Timing(), 0.0)
    log.grow(120, [EpochAt(2, 100)])
    lead.tick(0.0)
    return lead, log


def test_a_round_counts_when_a_majority_has_answered_and_all_that_is_committed_is_known() -> None:
    lead, log = leading()
    number = lead.begin_round(0.0)
    lead.taken("b", Taken(2, 100, number), 0.1)
    assert (lead.committed, lead.confirmed) == (80, 0)
    log.synced(120)
    lead.taken("b", Taken(2, 120, number), 0.2)
    log.commit(lead.committed)
    assert (log.committed, lead.confirmed) == (120, number)
    assert lead.confirmed < lead.begin_round(0.3)


def test_entries_say_what_begins_in_them_and_are_sent_once() -> None:
    lead, _log = leading()
    lead.taken("b", Taken(2, 100, 0), 0.1)
    (ask,) = lead.asks()
    assert ask == ("b", 100)
    to = lead.read(Read("b", 100, 120, b"frames"))
    assert to
    assert to.message.epochs == (EpochAt(2, 100),)  # type: ignore[union-attr]
    assert to.message.before == 1  # type: ignore[union-attr]
    assert lead.asks() == []
    assert lead.read(Read("b", 100, 120, b"frames")) is None


def test_nothing_is_refused_while_a_majority_was_heard_lately() -> None:
    lead, _log = leading()
    assert lead.refusal(0.5) == ""
    assert lead.refusal(5.0) == "1 of 3 nodes are there"
    lead.taken("c", Taken(2, 0, 0), 4.5)
    assert lead.refusal(5.0) == ""


def test_a_change_waits_until_something_of_the_epoch_is_committed() -> None:
    lead, log = leading()
    assert "does not know the committed position" in lead.change_refusal(GROUP._replace(copies=2))
    log.commit(120)
    assert lead.change_refusal(GROUP._replace(copies=2)) == ""


def test_a_node_that_lacks_only_what_was_stored_just_now_may_become_a_voter() -> None:
    nodes = tuple(Member(node, node, "", node != "c") for node in "abc")
    log = OwnLog(100, 100, 80, [EpochAt(1, 0)], [MembersAt(-1, Members(nodes))])
    lead = Leading("a", 2, log, Timing(), 0.0)

    def stored(end: int, now: float) -> str:
        log.grow(end, [EpochAt(2, 100)] if end == 120 else [])
        log.synced(end)
        log.commit(end)
        lead.tick(now)
        return lead.change_refusal(GROUP)

    stored(120, 0.0)
    lead.taken("c", Taken(2, 120, 0), 0.1)
    assert stored(5_000, 1.0) == ""
    lead.tick(1.0 + Timing().election_s)
    assert lead.change_refusal(GROUP) == ""
    lead.tick(1.2 + Timing().election_s)
    assert lead.change_refusal(GROUP) == "node c lacks 4,880 bytes of the committed log: a voter has all of it"
    lead.taken("c", Taken(2, 5_000, 0), 9.0)
    assert "lacks 1,995,000 bytes" in stored(2_000_000, 9.1)
