"""`penstock acl`: what it says of rules, and how a script hears it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.acl import acl
from penstock.cli.root import root
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
    assert f"{rules}: line 1" in str(result.exception)
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


def test_nobody_publishes_under_a_dollar_whatever_a_rule_says(rules: str) -> None:
    Path(rules).write_text("allow all all $SYS/#\nallow all all #\n")
    asked = run("test", "publish", "$SYS/x", "--file", rules)
    assert (asked.output, asked.exit_code) == ("refused: no client publishes under $\n", 1)
    assert run("test", "publish", "$SYS/x", "--json", "--file", rules).output == '{"allowed":false,"line":0}\n'
    assert run("test", "subscribe", "$SYS/x", "--file", rules).output == "allowed: line 1\n"


def test_a_shared_subscription_is_judged_by_its_filter_as_in_the_gateway(rules: str) -> None:
    Path(rules).write_text("deny all subscribe b/#\nallow all all #\n")
    for filter, answer in (("$share/g/a/x", "allowed: line 2\n"), ("$oshare/g/b/+", "refused: line 1\n")):
        assert run("test", "subscribe", filter, "--file", rules).output == answer
    for wrong in ("$share/g", "$share/g/", "$share/+/a", "$share/g/a#"):
        assert isinstance(run("test", "subscribe", wrong, "--file", rules).exception, InvalidTopic)


@pytest.mark.parametrize(
    "rule",
    ["allow all subscribe $share/g/x", "allow all publish $SYS/x", "allow all publish dev/%C", "deny all all %U/#"],
)
def test_a_rule_that_can_hardly_be_meant_is_warned_of_by_its_line(rules: str, rule: str) -> None:
    Path(rules).write_text(f"allow all all a/%c/$SYS\n{rule}\n")
    checked = run("check", "--file", rules)
    assert checked.stderr.startswith("warning: line 2: ")
    assert checked.stderr.count("\n") == 1
    assert checked.stdout == f"{rules}: 2 rules\n"
    assert checked.exit_code == 0


def test_no_answer_has_another_status_than_no(rules: str) -> None:
    def status(*words: str) -> int:
        return CliRunner().invoke(root, ["acl", "test", *words]).exit_code

    assert status("publish", "devices/d1/a", "--file", rules) == 1
    assert status("publish", "a/#", "--file", rules) == 2
    assert status("publish", "a", "--file", rules + "x") == 2
    Path(rules).write_text("allow nothing\n")
    assert status("publish", "a", "--json", "--file", rules) == 2


def test_who_may_use_a_client_id_is_asked_by_the_id(rules: str) -> None:
    free = run("test", "client", "d1", "--user", "alice", "--file", rules)
    assert (free.output, free.exit_code) == ("allowed: no rule is about client ids\n", 0)
    Path(rules).write_text("allow user alice client d1-*\n")
    yes = run("test", "client", "d1-7", "--user", "alice", "--file", rules)
    no = run("test", "client", "d1-7", "--user", "bob", "--file", rules)
    assert (yes.output, yes.exit_code) == ("allowed: line 1\n", 0)
    assert (no.output, no.exit_code) == ("refused: no rule applies\n", 1)
    assert run("check", "--file", rules).output.endswith("1 rules\n")


def test_rules_of_native_ports_are_asked_by_topic_or_group_and_an_empty_name_is_the_cluster(rules: str) -> None:
    Path(rules).write_text("allow user ada admin *\nallow user billing produce orders-*\n")
    for words, answer in (
        (("produce", "orders-1", "--user", "billing"), "allowed: line 2\n"),
        (("consume", "orders-1", "--user", "billing"), "refused: no rule applies\n"),
        (("view", "", "--user", "ada"), "allowed: line 1\n"),
    ):
        assert run("test", *words, "--file", rules).output == answer
