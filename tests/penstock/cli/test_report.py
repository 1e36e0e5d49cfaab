"""The command's mistakes, told before Spark starts; a report is made in tests/spark/test_report_in_spark.py."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.root import root


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        (("tomorrow",), "error: 'tomorrow' is no day\n", 2),
        (("9999-01-01",), "error: 9999-01-01 lies ahead; today is ", 2),
        (("2026-03-01", "--rule", "hot"), "error: 'hot' is no rule\n", 2),
        (("2026-03-01", "--topic", "nix"), "error: there is no topic nix\n", 3),
    ],
)
def test_a_mistake_is_one_sentence(real_cluster: Any, arguments: tuple[str, ...], told: str, status: int) -> None:
    result = CliRunner().invoke(root, ["--server", real_cluster.servers, "report", *arguments])
    assert result.stderr.startswith(told)
    assert result.exit_code == status
