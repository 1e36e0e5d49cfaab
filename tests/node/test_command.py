from __future__ import annotations

from click.testing import CliRunner

import node.command
from penstock.cli.root import root


def test_the_command_has_every_group_that_the_readme_names() -> None:
    result = CliRunner().invoke(root, ["--help"])
    assert node.command.main
    for name in ("up", "topic", "produce", "consume", "group", "mqtt", "telemetry", "store"):
        assert f"  {name} " in result.output
