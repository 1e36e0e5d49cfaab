"""Delayed messages as the benchmark sets and reads them, here a few."""

from __future__ import annotations

import pytest

from loadtest.native import timed
from loadtest.native.bench import create_topic
from loadtest.native.scenarios import TIMERS
from loadtest.native.worker import perform
from loadtest.servers import Penstock
from tests.loadtest.native.test_worker import to

pytestmark = [pytest.mark.endtoend, pytest.mark.slow]


def test_delayed_messages_are_set_and_come_late_by_what_is_said_and_never_early(
    server: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pace in (4_000, 400, 40, 4):  # a machine that has much to do sets them slower
        monkeypatch.setattr(timed, "SET_PER_S", pace)
        create_topic(server, f"timed-{pace}", 0)
        outcome = perform(to(server, f"timed-{pace}", kind=TIMERS, batch=100, messages=400))
        if "were not set" not in outcome.error:
            break
    assert (outcome.error, outcome.messages, outcome.checked) == ("", 400, 400)
    assert outcome.late_s > 0


def test_what_cannot_be_set_in_time_has_no_number(server: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "SET_PER_S", -1)
    outcome = perform(to(server, "untimed", kind=TIMERS, batch=100, messages=2_000))
    assert "were not set" in outcome.error
