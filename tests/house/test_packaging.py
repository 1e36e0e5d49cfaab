"""The files of `packaging/`, and the page about them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from broker.replica import hard_state
from broker.settings import BrokerSettings
from broker.store import backup, frames, index_chunk, label, state
from gateway.settings import GatewaySettings
from namesrv.settings import NamesrvSettings
from penstock.protocol.requests import replicas
from penstock.service import config
from penstock.service.process_log import LogSettings

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PAGE = (ROOT / "docs" / "guide" / "deploy.md").read_text()
SETTINGS = {
    "PENSTOCK_NAMESRV": NamesrvSettings,
    "PENSTOCK_BROKER": BrokerSettings,
    "PENSTOCK_GATEWAY": GatewaySettings,
    "PENSTOCK_LOG": LogSettings,
}


def test_the_page_has_the_formats_of_the_code() -> None:
    table = PAGE[PAGE.index("## Formats") :]
    told = {row[0].split(" (")[0]: int(row[1]) for row in re.findall(r"^\| ([^|]+) \| (\d+) \|", table, re.MULTILINE)}
    assert told == {
        "the data folder": label.FORMAT,
        "frames of the log": frames.FORMAT,
        "index chunks": index_chunk.VERSION,
        "checkpoints": state.VERSION,
        "state of a copy's node": hard_state.VERSION,
        "backups": backup.FORMAT,
        "what nodes of a group say to each other": replicas.SPEAKS,
    }


def test_the_page_speaks_of_every_format_that_has_a_page() -> None:
    pages = {path.name for path in (ROOT / "docs" / "formats").glob("*.md")}
    assert set(re.findall(r"\.\./formats/(\w+\.md)", PAGE)) == pages


def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    command = ["systemd-analyze", "verify", str(PACKAGING / "penstock.service")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    others = [line for line in (said.stderr + said.stdout).splitlines() if "is not executable" not in line]
    assert others == []
    unit = (PACKAGING / "penstock.service").read_text()
    assert unit.count("/opt/penstock/bin/penstock") == 2


def settings_of(environment: dict[str, str]) -> None:
    """Loads what these variables say. Raises ``InvalidConfig``."""
    for prefix, cls in SETTINGS.items():
        own = {name: value for name, value in environment.items() if name.startswith(prefix)}
        config.load_table(cls, {}, own, prefix)


def test_the_nodes_of_the_compose_file_have_settings_that_are_some_and_names_that_are_there() -> None:
    compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    services = compose["services"]
    kinds = [one["command"][0] for one in services.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"namesrv": 3, "broker": 3, "gateway": 3}
    for name, one in services.items():
        environment = one["environment"]
        settings_of(environment)
        assert one["read_only"] is True
        assert (PACKAGING / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
        servers = environment["PENSTOCK_BROKER_NAMESRV"].split(",")
        assert {server.partition(":")[0] for server in servers} <= services.keys()
        if name.startswith("broker"):
            assert environment["PENSTOCK_BROKER_ADVERTISE"] == f"{name}:10911"
            assert environment["PENSTOCK_BROKER_REPLICA_ADVERTISE"] == f"{name}:10912"
            assert environment["PENSTOCK_BROKER_NODE"] == name.replace("broker", "node")
            joined = environment.get("PENSTOCK_BROKER_JOIN", "")
            assert joined == ("" if name == "broker-1" else "broker-1:10912"), "one group, which the first node begins"
            assert one["volumes"][0].partition(":")[0] in compose["volumes"]


def test_the_image_copies_what_it_runs_and_runs_without_rights() -> None:
    lines = (PACKAGING / "Containerfile").read_text().splitlines()
    variables = dict(one.split("=", 1) for line in lines if line.startswith("ENV ") for one in line.split()[1:])
    settings_of({name: value for name, value in variables.items() if name.startswith("PENSTOCK")})
    users = [at for at, line in enumerate(lines) if line.startswith("USER ")]
    starts = [at for at, line in enumerate(lines) if line.startswith("ENTRYPOINT")]
    assert len(users) == len(starts) == 1
    assert lines[users[0]] == "USER 10001"
    assert users < starts
    assert any(line.startswith("HEALTHCHECK") for line in lines)


def test_the_script_of_the_wheels_is_a_script() -> None:
    script = PACKAGING / "wheels.sh"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
