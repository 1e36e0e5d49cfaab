"""``penstock backup`` and ``penstock restore`` on real folders."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.lineage.naming import name_log
from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.inspection import dump
from broker.store.message_store import MessageStore
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from node.command import root
from tests.broker.store.store_rig import incoming, stored

SETTINGS = StoreSettings(segment_bytes=8192, reserve_step_bytes=4096, emergency_bytes=0)


def run(*arguments: object, status: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(root, [*[str(one) for one in arguments], "--json"])
    assert result.exit_code == status, result.output
    row: dict[str, Any] = json.loads(result.stdout or result.stderr)
    return row


def opened(folder: Path) -> tuple[MessageStore, BrokerState]:
    state = BrokerState()
    return open_store(RealDisk(folder), SETTINGS, state, 1000), state


def bodies(folder: Path) -> list[bytes]:
    return [one.body for one in dump(RealDisk(folder, is_read_only=True)) if one.topic == "orders"]


@pytest.mark.parametrize("same_log", [False, True])
def test_a_running_brokers_log_is_backed_up_and_restored(same_log: bool, tmp_path: Path) -> None:
    data, backup, restored = tmp_path / "data", tmp_path / "backups" / "one", tmp_path / "restored"
    store, state = opened(data)
    name_log(state.identity, store, random.Random(1), 1000)
    for _ in range(3):
        stored(store, *[incoming(f"body {number}", "orders") for number in range(40)])
    first = run("backup", "-d", data, backup)
    stored(store, incoming("later", "orders"))
    second = run("backup", "-d", data, backup)
    assert second["end"] > first["end"]
    assert second["copied_bytes"] < first["copied_bytes"]
    made = run("restore", backup, "-d", restored, *(["--same-log"] if same_log else []))
    assert bodies(restored) == bodies(data)
    assert (made["log_id"] == state.identity.log_id) is same_log
    again, known = opened(restored)
    assert known.identity.log_id == made["log_id"]
    again.close(2000)
    store.close(2000)


def test_a_folder_with_a_log_is_left_as_it_is(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    store, _state = opened(data)
    stored(store, incoming("kept", "orders"))
    store.close(2000)
    run("backup", "-d", data, backup)
    refused = run("restore", backup, "-d", data, status=1)
    assert refused["message"] == "there is a log in the data folder already"
    assert bodies(data) == [b"kept"]


def test_damage_of_the_log_is_named_with_status_1(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store, _state = opened(data)
    stored(store, *[incoming(f"body {number}", "orders") for number in range(40)])
    store.close(2000)
    path = min((data / "log").glob("*.log"))
    harmed = bytearray(path.read_bytes())
    harmed[1000] ^= 1
    path.write_bytes(harmed)
    ((first, last),) = run("backup", "-d", data, tmp_path / "backup", status=1)["damage"]
    assert first <= 1000 < last
