"""`penstock acl`: what it says of rules, and how a script hears it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.acl import acl
from penstock.errors import InvalidConfig, InvalidTopic


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "acl").write_text("# rules\nallow user alice publish devices/%c/#\n")
    return str(tmp_path / "acl")


def run(*words: str) -> Result:
    return CliRunner().invoke(acl, list(words))


def test_rules_are_counted_and_bad_ones_named(rules: str) -> None:
    assert run("check", "--file", rules).output.endswith("1 rules\n")
    Path(rules).write_text("allow nothing\n")
    result = run("check", "--file", rules)
    assert isinstance(result.exception, InvalidConfig)
    assert "line 1" in str(result.exception)
    assert isinstance(run("check", "--file", rules + "x").exception, InvalidConfig)


def test_a_verdict_is_said_with_its_line_and_as_the_exit_status(rules: str) -> None:
    yes = run("test", "publish", "devices/d1/a", "--user", "alice", "--client", "d1", "--file", rules)
    no = run("test", "publish", "devices/d2/a", "--user", "alice", "--client", "d1", "--file", rules)
    assert (yes.output, yes.exit_code) == ("allowed: line 2\n", 0)
    assert (no.output, no.exit_code) == ("refused: no rule applies\n", 1)
    told = run("test", "subscribe", "#", "--json", "--file", rules)
    assert told.output.strip() == '{"allowed":false,"line":0}'


def test_what_is_no_name_is_an_error(rules: str) -> None:
    assert isinstance(run("test", "publish", "a/#", "--file", rules).exception, InvalidTopic)
