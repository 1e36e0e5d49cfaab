"""``penstock store`` on real folders."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.state import BrokerState
from broker.store.disk import RealDisk
from broker.store.recovery import open_store
from broker.store.settings import StoreSettings
from broker.store_command import store_group
from node.command import root
from tests.broker.store.store_rig import incoming, stored


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = StoreSettings(reserve_step_bytes=4096, emergency_bytes=0)
    store = open_store(RealDisk(tmp_path), settings, BrokerState(), 1000)
    stored(store, *[incoming(f"body {number}", "orders", tag="new") for number in range(20)])
    store.close(2000)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(store_group, [str(one) for one in arguments])


def test_verify_says_sound_with_status_0(folder: Path) -> None:
    result = run("verify", "-d", folder)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "sound"


def test_verify_and_dump_read_a_folder_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: Path, flags: int, *mode: int) -> int:  # as of a snapshot or a copy that nobody may change
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    assert run("verify", "-d", folder).stdout.splitlines()[-1] == "sound"
    assert len(run("dump", "-d", folder).stdout.splitlines()) == 20
    refused = run("repair-index", "-d", folder)
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_verify_names_the_damage_with_status_1(folder: Path) -> None:
    path = next((folder / "log").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    result = run("verify", "-d", folder, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["sound"]
    ((first, last),) = report["damage"]
    assert first <= 1000 < last
    plain = run("verify", "-d", folder)
    assert "fail their checksum" in plain.stdout
    assert plain.stdout.splitlines()[-1] == "NOT SOUND"


def test_verify_names_what_is_in_no_file_once(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=8192, reserve_step_bytes=4096, emergency_bytes=0)
    store = open_store(RealDisk(tmp_path), settings, BrokerState(), 1000)
    stored(store, *[incoming(f"body {number}", "orders") for number in range(50)])
    stored(store, *[incoming(f"body {number}", "orders") for number in range(50)])
    stored(store, *[incoming(f"body {number}", "orders") for number in range(50)])
    store.close(2000)
    paths = sorted((tmp_path / "log").glob("*.log"))
    paths[0].unlink()
    paths[1].unlink()
    assert len(paths) > 2
    result = run("verify", "-d", tmp_path)
    first = int(paths[2].stem)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        f"missing  positions 0 to {first:,} are in no file of log/: messages there are lost",
        "NOT SOUND",
    ]
    assert json.loads(run("verify", "-d", tmp_path, "--json").stdout)["missing"] == [[0, first]]


@pytest.mark.parametrize("command", ["verify", "repair-index"])
def test_an_error_has_another_status_than_damage(command: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    result = CliRunner().invoke(root, ["store", command, "-d", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_dump_prints_records_and_hides_the_brokers_own(folder: Path) -> None:
    result = run("dump", "-d", folder, "-n", 3, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["offset"], row["body"], row["properties"]) for row in rows] == [
        (number, f"body {number}", {"TAGS": "new"}) for number in range(3)
    ]
    assert len(run("dump", "-d", folder).stdout.splitlines()) == 20
    assert len(run("dump", "-d", folder, "--system").stdout.splitlines()) > 20
    assert run("dump", "-d", folder, "-t", "none").stdout == ""


def test_repair_index_brings_back_what_was_deleted(folder: Path) -> None:
    for path in [*(folder / "index").iterdir(), *(folder / "checkpoint").iterdir()]:
        path.unlink()
    result = run("repair-index", "-d", folder)
    assert (result.exit_code, result.stdout) == (0, "the index was made again\n")
    assert list((folder / "index").iterdir())
    assert run("verify", "-d", folder).exit_code == 0


def test_each_command_explains_itself_with_examples() -> None:
    for name in store_group.commands:
        assert f"penstock store {name}" in run(name, "--help").stdout
