"""Transactions whose producers die: settled by another of their group, or by an operator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import HalfMessage
from penstock.blocking import Producer, Reader
from penstock.cli.root import root
from tests.endtoend.conftest import System
from tests.patience import poll

pytestmark = pytest.mark.endtoend

LEAVES_TWO_OPEN = """
import sys
from penstock.blocking import Producer

with Producer(servers=sys.argv[1], group="payments") as producer:
    with producer.transaction("orders", b"paid", key="k") as tx:
        tx.unknown()
    with producer.transaction("orders", b"not paid", key="k"):
        print("open", flush=True)
        sys.stdin.read()
"""


def penstock(system: System, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(root, ["--server", system.namesrv, *arguments])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def parked(system: System) -> list[dict[str, Any]]:
    """The parked halves, once there are some."""
    return poll("a parked half", lambda: penstock(system, "transaction", "list", "--parked", "--json"))


def test_what_a_dead_producer_left_is_settled_by_its_group_or_by_an_operator(
    system: Callable[..., System], tmp_path: Path
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text("[broker]\nhalf_check_after_s = 0.00001\n")
    started = system("--config", str(config)).start()
    command = [sys.executable, "-c", LEAVES_TWO_OPEN, started.namesrv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "open\n"
        dying.kill()

    def check(half: HalfMessage) -> Any:
        return {b"paid": "commit", b"not paid": "rollback"}[half.body]

    with Producer(servers=started.namesrv, group="payments", check=check) as producer:

        def left() -> list[dict[str, Any]]:
            producer.answer_checks(0.5)
            return penstock(started, "transaction", "list", "--json")

        poll("answers for all halves", left, lambda rows: not rows)
    with Producer(servers=started.namesrv, group="without-listener") as producer:
        with producer.transaction("orders", b"by hand", key="k") as tx:
            tx.unknown()
        row = parked(started)[0]
        assert (row["broker"], row["id"], row["checks"]) == (tx.ids[0][0], str(tx.ids[0][1]), 0)
        assert row["parked"] == "no producer of the group was there to be asked"
    penstock(started, "transaction", "commit", row["id"])
    command = ["--server", started.namesrv, "transaction", "rollback", row["id"], "--yes"]
    assert "was committed already" in CliRunner().invoke(root, command).stderr
    with Reader("orders", servers=started.namesrv, until_end=True) as reader:
        assert [message.body for message in reader.messages()] == [b"paid", b"by hand"]
    assert started.stop() == 0
