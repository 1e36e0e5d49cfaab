"""docs/guide/analyst.md: its Python blocks run, in the order of the page; what it says of options and columns is so."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock.spark
from penstock.cli.root import root
from penstock.spark.columns import COLUMNS
from penstock.spark.options import NAMES
from penstock.spark.sink.options import COLUMNS as SINK_COLUMNS
from penstock.spark.sink.options import NAMES as SINK_NAMES
from penstock.telemetry import command

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "analyst.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
DEFAULT = "127.0.0.1:9876"
ALIASES = {"kafka.bootstrap.servers", "nameServer"}


def test_the_python_blocks_run_in_order(
    spark: Any, cluster: Any, send: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(penstock.spark, "session", lambda: spark)
    send("telemetry", [b'{"value": 21.5}', b"null"], mqtt_topic="telemetry/d7/temperature")
    send("spBv1.0", [b"\x12\x08\x0a\x01a\x20\x0aP\x03"], mqtt_topic="spBv1.0/plant/NDATA/edge1")
    scope: dict[str, Any] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(block.replace(DEFAULT, cluster.servers), scope)
    shown = capsys.readouterr().out
    assert "telemetry/d7/temperature" in shown
    assert "1 windows changed" in shown
    assert [(row["device"], row["count"], row["refused"]) for row in scope["seen"]] == [("d7", 1, 1)]


def test_the_commands_of_the_page_exist_with_their_flags() -> None:
    root.add_command(command.telemetry)
    lines = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines()]
    for line in lines:
        words = shlex.split(line)[1:]
        if words == ["up"]:
            continue
        flags = [word for word in words if word.startswith("--")]
        groups = list(itertools.takewhile(str.isalpha, words)) if words[0] == "telemetry" else words[:1]
        said = CliRunner().invoke(root, [*groups, "--help"])
        assert said.exit_code == 0, said.output
        assert [flag for flag in flags if flag not in said.output] == []


def test_every_option_and_column_is_on_the_page() -> None:
    assert [name for name in NAMES if f"`{name}`" not in GUIDE and name not in ALIASES] == []
    assert [name for name in SINK_NAMES if f"`{name}`" not in GUIDE and name not in ALIASES] == []
    assert [name for name in SINK_COLUMNS if f"`{name}`" not in GUIDE] == []
    assert [name for name in COLUMNS if f"`{name}`" not in GUIDE] == []
