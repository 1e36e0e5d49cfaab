from __future__ import annotations

from click.testing import CliRunner

from node.up import up


def test_help_shows_examples() -> None:
    result = CliRunner().invoke(up, ["--help"])
    assert result.exit_code == 0
    assert "penstock up --data /var/lib/penstock" in result.output


def test_a_port_that_is_none_is_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(up, ["--mqtt-port", "70000"])
    assert result.exit_code == 2
    assert "--mqtt-port" in result.output
