"""The process of one run: an order in, an outcome out."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import asdict

import pytest

from loadtest import run, scenarios
from loadtest.generator import Outcome
from tests.loadtest.small_server import SmallServer
from tests.loadtest.test_paced import order

pytestmark = pytest.mark.endtoend


def test_an_order_is_read_and_its_outcome_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.gc, "disable", lambda: None)
    with SmallServer() as server:
        given = order(server.port, kind=scenarios.IDLE, publishers=3, server_pid=os.getpid())
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asdict(given))))
        run.main()
    outcome = Outcome(**json.loads(capsys.readouterr().out))
    assert (outcome.error, outcome.checked) == ("", 3)


def test_every_kind_of_scenario_has_its_run() -> None:
    assert {one.kind for one in scenarios.SCENARIOS} == set(run.KINDS)
