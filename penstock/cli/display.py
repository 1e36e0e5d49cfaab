"""How the commands print: tables for people, one JSON object per line for programs.

A command hands over the same rows for both, so that ``--json`` never lacks what the table shows.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

from penstock.client.completeness import ALLOW, Holders
from penstock.errors import InvalidConfig
from penstock.protocol.requests.routes import BrokerRoute

Row = Mapping[str, Any]

JSON_WANTED: Final = "penstock.json"
"""Key in a click context's ``meta``: the command was told ``--json``, so that errors are JSON too."""

ERROR_STATUS: Final = "penstock.error_status"
"""Key in a click context's ``meta``: the exit status of errors, in a command whose own answer has that of a failure."""

UNANSWERED: Final = 2
"""That exit status: the command has no answer."""


def _note_json(context: click.Context, _parameter: click.Parameter, wanted: bool) -> bool:
    context.meta[JSON_WANTED] = wanted
    return wanted


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_note_json, help="One JSON object per line; errors too."
)


incomplete_option = click.option(
    "--allow-incomplete", is_flag=True, help="Leave out brokers that are away; without it they are an error."
)


def named(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A callback of options that name something and may be left out: an empty text, such as a shell's variable that is
    not set, is refused."""
    if value == "" and context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT:
        raise click.BadParameter("the name is empty; leave the option out")
    return value


def to_list(found: Holders, what: str, allow_incomplete: bool) -> tuple[BrokerRoute, ...]:
    """The brokers that a command asks. Raises ``BrokerAway``, or says what is left out if that was allowed."""
    if found.away and allow_incomplete:
        click.echo(f"(incomplete: without {', '.join(found.away)}, which may have some of {what})", err=True)
        return found.brokers
    return found.whole(what, hint=ALLOW)


def confirm(question: str, otherwise: str) -> None:
    """Goes on only if a person says yes. Raises ``InvalidConfig``, which says what is so ``otherwise``."""
    try:
        is_meant = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # the line of the question is still open
        is_meant = False
    if not is_meant:
        raise InvalidConfig(otherwise, hint="answer y, or add --yes")


def print_json(row: Row) -> None:
    """One object on one line."""
    click.echo(json.dumps(row, ensure_ascii=False, separators=(",", ":")))


def print_rows(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool, empty: str = "nothing") -> None:
    """Rows as a table with the given columns, or one object per line with all that the rows have."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    if not rows:
        click.echo(f"({empty})", err=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numbers = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        # a text, for a string would be read as markup
        table.add_row(*[Text(shown(_text(row[column]))) for column in columns])
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # nothing is cut off in a file or a pipe
    console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)


def shown(text: str) -> str:
    """A stranger's text for a person, in one line: characters that would move the cursor, colour the screen or reverse
    the text are shown as escapes."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode() for one in text])


def line_text(body: bytes, characters_max: int = 0) -> str:
    """A body for a person, as it is ``shown``. With ``characters_max`` a longer one is cut, and its size named."""
    text, _ = body_text(body)
    cut = text[:characters_max] if characters_max else text
    return shown(cut) if len(cut) == len(text) else f"{shown(cut)}... ({len(body):,} bytes)"


def body_text(body: bytes) -> tuple[str, str]:
    """A body for a person or JSON: as UTF-8 text, else in base64; and which of both it is."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"
