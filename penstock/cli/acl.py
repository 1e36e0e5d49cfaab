"""``penstock acl``: looks at a file of access rules before a gateway does."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.access.acl import Acl, Verdict, parse_acl
from penstock.cli.display import json_option, print_json
from penstock.errors import InvalidConfig, InvalidTopic
from topicmap.names import InvalidName, check_filter, check_name

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
    """Check access rules and ask what they say."""


@acl.command()
@file_option
def check(file: Path) -> None:
    """Read the rules as a gateway would.

    \b
    Examples:
      penstock acl check --file /etc/penstock/acl
    """
    click.echo(f"{file}: {len(_read(file).rules)} rules")


@acl.command()
@click.argument("action", type=click.Choice(["publish", "subscribe", "position"]))
@click.argument("topic")
@click.option("--user", default="", help="The user name; left out for an anonymous client.")
@click.option("--client", default="", help="The client id.")
@file_option
@json_option
def test(action: str, topic: str, user: str, client: str, file: Path, as_json: bool) -> None:
    """Say whether a client may, and which line decides; the exit status is 1 where it may not.

    \b
    Examples:
      penstock acl test publish devices/d1/state --user alice --client d1 --file /etc/penstock/acl
      penstock acl test subscribe 'devices/#' --user alice --file /etc/penstock/acl
    """
    rules = _read(file)
    try:
        (check_filter if action == "subscribe" else check_name)(topic)
    except InvalidName as error:
        raise InvalidTopic(f"{topic!r}: {error}") from None
    verdict: Verdict = getattr(rules, action)(user, client, topic)
    if as_json:
        print_json({"allowed": verdict.allowed, "line": verdict.line})
    else:
        why = f"line {verdict.line}" if verdict.line else "no rule applies"
        click.echo(f"{'allowed' if verdict.allowed else 'refused'}: {why}")
    sys.exit(0 if verdict.allowed else REFUSED)


def _read(file: Path) -> Acl:
    try:
        return parse_acl(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
