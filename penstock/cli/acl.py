"""``penstock acl``: looks at a file of access rules before a gateway does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from penstock.access.acl import NATIVE, Acl, Rule, Verdict, parse_acl
from penstock.cli.display import ERROR_STATUS, UNANSWERED, json_option, print_json
from penstock.errors import InvalidConfig, InvalidTopic
from topicmap.names import InvalidName, check_name, is_share, legal_filter

REFUSED: int = 1
"""Exit status of ``penstock acl test`` where the answer is no."""

file_option = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    envvar="PENSTOCK_GATEWAY_ACL_FILE",
    show_envvar=True,
    help="The access rules.",
)


@click.group()
def acl() -> None:
    """Check access rules and test them."""


@acl.command()
@file_option
def check(file: Path) -> None:
    """Read the rules as a gateway would, and warn of those that mean something else than they seem to.

    \b
    Examples:
      penstock acl check --file /etc/penstock/acl
    """
    rules = _read(file).rules
    for rule in rules:
        doubt = _doubt(rule)
        if doubt:
            click.echo(f"warning: line {rule.line}: {doubt}", err=True)
    click.echo(f"{file}: {len(rules)} rules")


@acl.command()
@click.argument("action", type=click.Choice(["publish", "subscribe", "position", "client", *NATIVE]))
@click.argument("topic")
@click.option("--user", default="", help="The user name; left out for an anonymous client.")
@click.option("--client", default="", help="The client id.")
@file_option
@json_option
@click.pass_context
def test(context: click.Context, action: str, topic: str, user: str, client: str, file: Path, as_json: bool) -> None:
    """Say whether a client may, and which line decides; the exit status is 1 where it may not, 2 for an error.

    With `client`, TOPIC is the client id that a user wants to use; with produce, consume, group, view and admin, which
    are of native clients and the console, it is the topic or group, and "" the cluster as a whole.

    \b
    Examples:
      penstock acl test publish devices/d1/state --user alice --client d1 --file /etc/penstock/acl
      penstock acl test subscribe 'devices/#' --user alice --file /etc/penstock/acl
      penstock acl test client d1-7 --user alice --file /etc/penstock/acl
      penstock acl test produce orders-1 --user billing --file /etc/penstock/acl
    """
    context.meta[ERROR_STATUS] = UNANSWERED
    rules = _read(file)
    if action == "client":
        _say(rules.client(user, topic), "" if rules.has_client_rules else "no rule is about client ids", as_json)
    if action in NATIVE:
        _say(rules.native(user, action, topic), "", as_json)
    why = ""
    try:
        if action == "subscribe":
            topic = legal_filter(topic)  # a shared subscription is judged by what it is about
        else:
            check_name(topic)
    except InvalidName as error:
        raise InvalidTopic(f"{topic!r}: {error}") from None
    verdict: Verdict = getattr(rules, action)(user, client, topic)
    if action == "publish" and topic.startswith("$"):
        verdict, why = Verdict(False, 0), "no client publishes under $"
    _say(verdict, why, as_json)


def _say(verdict: Verdict, why: str, as_json: bool) -> NoReturn:
    """``why``: the reason to print if no rule decided."""
    if as_json:
        print_json({"allowed": verdict.allowed, "line": verdict.line})
    else:
        why = f"line {verdict.line}" if verdict.line else why or "no rule applies"
        click.echo(f"{'allowed' if verdict.allowed else 'refused'}: {why}")
    sys.exit(0 if verdict.allowed else REFUSED)


def _read(file: Path) -> Acl:
    try:
        return parse_acl(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    except InvalidConfig as error:
        raise InvalidConfig(f"{file}: {error.message}", hint=error.hint) from None


def _doubt(rule: Rule) -> str:
    """The reason to doubt a rule, empty without one."""
    if rule.action == "client" or rule.action in NATIVE:
        return _doubt_of_words(rule.pattern.split("/"))
    if is_share(rule.pattern):
        return "a shared subscription is judged by its filter: leave $share/GROUP/ out"
    if rule.allows and rule.action == "publish" and rule.pattern.startswith("$"):
        return "no client publishes under $, whatever a rule says"
    return _doubt_of_words(rule.pattern.split("/"))


def _doubt_of_words(words: Sequence[str]) -> str:
    meant = {"%C": "the client id is %c", "%U": "the user name is %u"}
    return next((f"{word} stands for itself; {meant[word]}" for word in words if word in meant), "")
