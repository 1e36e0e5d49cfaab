"""The audit log: bounded, and without what nobody may read."""

from __future__ import annotations

import logging

import pytest

from penstock.access.policy import SCRAM, Identity
from penstock.protocol.requests.messages import AuditEntry
from penstock.service.audit import KINDS_MAX, OTHERS, Audit, Trail

UNPROVEN, ADA = Identity(), Identity("ada", SCRAM)


def test_an_act_is_kept_and_told_with_who_what_and_where(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    audit = Audit(lambda: 7, lambda: 0.0)
    audit.note(ADA, "192.0.2.1:5", "DeleteTopic", "orders", allowed=True)
    audit.note(UNPROVEN, "192.0.2.1:6", "Pull", "orders", allowed=False, why="consume")
    audit.note(ADA, "192.0.2.1", "Publish", "a/b", allowed=False, why="access rules", client="d7")
    audit.keep(UNPROVEN, "192.0.2.1", "Login", "", allowed=False, why="wrong_password")
    assert audit.trail.take() == (
        AuditEntry(7, "ada", "scram", "192.0.2.1:5", "DeleteTopic", "orders", True),
        AuditEntry(7, "", "anonymous", "192.0.2.1:6", "Pull", "orders", False, "consume"),
        AuditEntry(7, "ada", "scram", "192.0.2.1", "Publish", "a/b", False, "access rules", "d7"),
        AuditEntry(7, "", "anonymous", "192.0.2.1", "Login", "", False, "wrong_password"),
    )
    assert caplog.messages == [
        "allowed: DeleteTopic 'orders' by 'ada' (scram) from 192.0.2.1:5",
        "refused: Pull 'orders' by nobody (anonymous) from 192.0.2.1:6: consume",
        "refused: Publish 'a/b' by 'ada' (scram), client 'd7', from 192.0.2.1: access rules",
    ]
    assert (audit.allowed, audit.refused) == (1, 3)


def test_what_peers_do_a_thousand_times_has_few_lines_and_one_entry(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    audit = Audit(lambda: int(now[0] * 1000), lambda: now[0])
    for _ in range(1000):
        audit.note(UNPROVEN, "a", "Pull", "x" * 1000 + "\n", allowed=False)
    assert len(caplog.messages) < 200
    assert all(len(line) < 400 and "\n" not in line for line in caplog.messages)
    now[0] = 60.0
    audit.note(UNPROVEN, "a", "Pull", "x", allowed=False)
    assert "more were not told" in caplog.messages[-1]
    assert audit.refused == 1001
    assert [(one.at_ms, one.name, one.times) for one in audit.trail.take()] == [
        (0, "x" * 254 + "…", 1000),
        (60_000, "x", 1),
    ]
    assert audit.trail.take() == ()


def test_no_flood_of_refusals_pushes_out_an_act_of_administration() -> None:
    trail = Trail()
    for number in range(3 * KINDS_MAX):
        trail.add(AuditEntry(number, "", "anonymous", "a", "Pull", f"t{number}", False))
    trail.add(AuditEntry(9, "ada", "scram", "b", "DeleteTopic", "orders", True))
    taken = trail.take()
    assert (len(taken), trail.left_out) == (KINDS_MAX + 2, 2 * KINDS_MAX)
    [others] = [one for one in taken if one.act == OTHERS]
    assert (others.times, others.allowed) == (2 * KINDS_MAX, False)
    assert [one.name for one in taken if one.allowed] == ["orders"]
    trail.put_back(taken)
    assert sorted(trail.take()) == sorted(taken)


def test_an_entry_that_is_put_back_keeps_the_time_of_its_first_act() -> None:
    trail, act = Trail(), AuditEntry(5, "", "anonymous", "a", "Pull", "orders", False)
    trail.add(act)
    taken = trail.take()
    trail.add(act._replace(at_ms=9))
    trail.put_back(taken)
    assert trail.take() == (act._replace(times=2),)


def test_an_entry_is_short_whatever_a_peer_sends_and_says_where_it_was_cut() -> None:
    audit = Audit(lambda: 7, lambda: 0.0)
    audit.note(Identity("u" * 300, SCRAM), "a", "Pull", "n" * 300, allowed=False, why="w" * 300, client="c" * 255)
    [entry] = audit.trail.take()
    cut = [entry.user, entry.name, entry.why]
    assert cut == [letter * 254 + "…" for letter in "unw"]
    assert entry.client == "c" * 255
