"""``penstock retained``: the retained messages of MQTT names."""

from __future__ import annotations

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import body_text, json_option, line_text, print_rows
from penstock.cli.durations import shown_time

PAGE = 500
_SHOWN = 80


@click.group()
def retained() -> None:
    """List retained messages, the last values of MQTT names."""


@retained.command("ls")
@click.argument("filter", default="#")
@click.option(
    "-n", "--count", default=100, show_default=True, type=click.IntRange(min=1), help="Maximum number of messages."
)
@json_option
@click.pass_obj
def list_retained(server: str, filter: str, count: int, as_json: bool) -> None:
    """List the retained messages whose names FILTER matches, by name.

    \b
    Examples:
      penstock retained ls 'sensors/+/temperature'
      penstock mqtt pub -r sensors/d7/temperature ''      removes one: an empty message
    """
    rows: list[dict[str, object]] = []
    after = ""
    with Admin(server) as admin:
        while len(rows) < count:
            page = admin.retained_page(filter, after, min(PAGE, count - len(rows)))
            for one in page.messages:
                text, encoding = body_text(one.body)
                row = {"name": one.name, "stored": shown_time(one.stored_ms), "bytes": len(one.body)}
                said = {"payload": text, "encoding": encoding} if as_json else {"payload": line_text(one.body, _SHOWN)}
                rows.append(row | said)
            after = page.after
            if not after:
                break
    print_rows(rows, ("name", "stored", "bytes", "payload"), as_json=as_json, empty="no retained messages")
    if after and not as_json:
        click.echo(f"(there are more: -n {10 * count:,} shows more of them)", err=True)
