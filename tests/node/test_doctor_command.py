"""``penstock doctor`` and ``penstock config check``."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from node.command import root
from tests.node.running import RunningSystem


def run(*arguments: object) -> Result:
    return CliRunner().invoke(root, [str(one) for one in arguments], env={"PENSTOCK_HTTP_PORT": "0"})


def test_a_running_node_is_left_alone_and_its_folder_and_ports_are_good(tmp_path: Path) -> None:
    system = RunningSystem(tmp_path / "data")
    try:
        file = tmp_path / "penstock.toml"
        port = system.addresses.mqtt.rpartition(":")[2]
        file.write_text(f"mqtt_port = {port}\nbroker_port = 0\nnamesrv_port = 0\n")
        result = run("doctor", "--data", tmp_path / "data", "--config", file, "--json")
        rows = {row["check"]: row for row in map(json.loads, result.stdout.splitlines())}
        assert rows["data folder"]["found"].endswith("a broker holds it")
        assert rows["port of gateway"]["verdict"] == "good"
        bad = [row for row in rows.values() if row["verdict"] == "bad"]
        assert result.exit_code == (1 if bad else 0)
    finally:
        system.stop()


def test_a_sound_file_is_said_to_be_and_its_settings_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_port = 1884\n[broker]\ndefault_queues = 8\n")
    sound = run("config", "check", "--config", file)
    assert (sound.exit_code, sound.stdout.split(":")[0]) == (0, "sound")
    shown = run("config", "check", "--config", file, "--show", "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {"service": "broker", "setting": "default_queues", "value": 8} in rows
    assert {"service": "gateway", "setting": "port", "value": 1884} in rows
    constants = {"lease_s_max", "flush_bytes", "pull_wait_s"}
    assert not constants & {row["setting"] for row in rows}, "a file that had them would be refused"


def test_all_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("mqtt_prot = 1884\n[broker]\ndefault_queues = -1\n[gatway]\n")
    result = run("config", "check", "--config", file)
    assert result.exit_code == 2
    assert f"{file}:1:" in result.stderr
    assert f"{file}:3:" in result.stderr
    assert f"{file}:4:" in result.stderr


def test_files_that_settings_name_and_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file, users, rules = tmp_path / "penstock.toml", tmp_path / "nosuch", tmp_path / "rules"
    rules.write_text("")
    listener = f"tls 127.0.0.1:0 name=devices certificate={tmp_path / 'none.pem'}"
    file.write_text(f'password_file = "{users}"\nacl_file = "{rules}"\n[gateway]\nlisteners = ["{listener}"]\n')
    result = run("config", "check", "--config", file)
    assert result.exit_code == 2
    assert f"password_file: cannot read {users}: No such file or directory" in result.stderr
    assert f"listener devices: cannot read {tmp_path / 'none.pem'}" in result.stderr
    assert str(rules) not in result.stderr
