"""Rebalances as the benchmark sees them, here of a few queues."""

from __future__ import annotations

import pytest

from loadtest.native import rebalancing
from loadtest.native.bench import create_topic
from loadtest.native.scenarios import REBALANCE
from loadtest.native.worker import perform
from loadtest.servers import Penstock
from tests.loadtest.native.test_worker import to

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def test_all_queues_are_dealt_when_members_come_and_go(server: Penstock) -> None:
    create_topic(server, "dealt", 6)
    outcome = perform(to(server, "dealt", kind=REBALANCE, tasks=3, messages=6))
    assert outcome.error == ""
    assert outcome.messages >= 2 * 6
    assert all(0 < outcome.figures[name] < rebalancing.PATIENCE_S for name in ("ordinary_s", "ordered_s"))


def test_queues_that_are_not_dealt_have_no_number(server: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalancing, "PATIENCE_S", 0.3)
    create_topic(server, "undealt", 2)
    outcome = perform(to(server, "undealt", kind=REBALANCE, tasks=2, messages=3))
    assert outcome.error == "3 queues were not dealt to 2 members within 0 s"
