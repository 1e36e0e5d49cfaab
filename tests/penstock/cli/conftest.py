"""Runs the command against real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.root import root

Penstock = Callable[..., Result]


@pytest.fixture
def penstock(real_cluster: Any) -> Penstock:
    """``penstock("topic", "list")``: runs the command and returns what click's runner returns."""

    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(root, ["--server", real_cluster.servers, *arguments], input=stdin)

    return run


@pytest.fixture
def rows(penstock: Penstock) -> Callable[..., list[dict[str, Any]]]:
    """The objects that a command prints with ``--json``."""

    def run(*arguments: str, stdin: bytes | None = None) -> list[dict[str, Any]]:
        result = penstock(*arguments, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run
