"""The audit log: bounded, and without what nobody may read."""

from __future__ import annotations

import logging

import pytest

from penstock.access.policy import SCRAM, Identity
from penstock.service.audit import Audit, Entry


def test_an_act_is_kept_and_told_with_who_what_and_where(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kept: list[Entry] = []
    audit = Audit(lambda: 7, lambda: 0.0, kept.append)
    audit.note(Identity("ada", SCRAM), "192.0.2.1:5", "DeleteTopic", "orders", allowed=True)
    audit.note(Identity(), "192.0.2.1:6", "Pull", "orders", allowed=False, why="consume")
    assert kept[0] == Entry(7, "ada", "scram", "192.0.2.1:5", "DeleteTopic", "orders", True)
    assert caplog.messages == [
        "allowed: DeleteTopic 'orders' by 'ada' (scram) from 192.0.2.1:5",
        "refused: Pull 'orders' by nobody (anonymous) from 192.0.2.1:6: consume",
    ]
    assert (audit.allowed, audit.refused) == (1, 1)


def test_what_peers_do_a_thousand_times_has_few_lines_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    audit = Audit(lambda: 0, lambda: now[0])
    for _ in range(1000):
        audit.note(Identity(), "a", "Pull", "x" * 1000 + "\n", allowed=False)
    assert len(caplog.messages) < 200
    assert all(len(line) < 400 and "\n" not in line for line in caplog.messages)
    now[0] = 60.0
    audit.note(Identity(), "a", "Pull", "x", allowed=False)
    assert "more were not told" in caplog.messages[-1]
    assert audit.refused == 1001
