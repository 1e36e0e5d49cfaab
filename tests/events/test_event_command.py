"""``penstock event`` against a real event bridge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.root import root
from tests.events.bridge import Bridge
from tests.events.sink import Sink
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.endtoend
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "webhook.sh"


def run(bridge: Bridge, *arguments: str) -> Result:
    return CliRunner().invoke(root, ["event", "--events", bridge.address, *arguments])


def test_a_person_makes_a_rule_tries_it_and_drives_a_dead_letter_again(
    bridge: Bridge, sink: Callable[..., Sink], tmp_path: Path
) -> None:
    api, bus = sink(400, 200), bridge.bus()
    file = tmp_path / "target.json"
    file.write_text(json.dumps({"kind": "http", "url": api.url}))
    for command in (
        ("target", "put", bus, "t", f"@{file}"),
        ("rule", "put", bus, "r", '{"target": "t", "pattern": {"type": ["x"]}}'),
        ("schema", "put", bus, "x", '{"schema": {"required": ["n"]}}'),
    ):
        assert run(bridge, *command).exit_code == 0
    event = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "y"}'
    assert json.loads(run(bridge, "rule", "test", bus, "r", event).stdout)["matches"] is False
    assert json.loads(run(bridge, "send", bus, '{"n": 1}', "--type", "x").stdout)["offset"] == 0
    bridge.until(f"/v1/buses/{bus}/rules/r/dead-letters", len)
    [letter] = run(bridge, "dlq", "list", bus, "r", "--json").stdout.splitlines()
    assert json.loads(letter)["reason"] == "HTTP 400"
    assert json.loads(run(bridge, "dlq", "redrive", bus, "r").stdout)["sent"] == 1
    assert json.loads(api.wait(2)[1].body) == {"n": 1}
    [row] = run(bridge, "types", bus, "--json").stdout.splitlines()
    assert json.loads(row)["rules"] == ["r"]
    assert "r" in run(bridge, "rule", "list", bus).stdout
    assert run(bridge, "rule", "delete", bus, "r").exit_code == 2
    assert run(bridge, "rule", "delete", bus, "r", "--yes").exit_code == 0
    assert run(bridge, "rule", "show", bus, "r").exit_code == 3


def test_what_is_wrong_is_told_in_one_line(bridge: Bridge) -> None:
    fault = run(bridge, "target", "put", "default", "t", '{"kind": "http", "url": "x"}')
    assert (fault.exit_code, fault.stderr.splitlines()[-1]) == (2, "       at /url")
    broken = run(bridge, "send", "default", "{", "--type", "x")
    assert (broken.exit_code, "no JSON" in broken.stderr) == (2, True)
    away = CliRunner().invoke(root, ["event", "--events", "127.0.0.1:1", "bus", "list"])
    assert (away.exit_code, "penstock up --events-port" in away.stderr) == (1, True)


def test_the_example_of_the_guide_runs(bridge: Bridge, tmp_path: Path) -> None:
    environ = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(EXAMPLE.parents[2]),
        "PENSTOCK_EVENTS_ADDRESS": bridge.address,
        "MQTT": bridge.addresses.mqtt,
    }
    done = subprocess.run(
        ["bash", str(EXAMPLE)], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == 'delivered after the redrive: {"device":"plant/d7/temperature","celsius":41}'
