"""``penstock find``: messages by key or id."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import click

from penstock.blocking import find as find_messages
from penstock.cli.consume import show_message
from penstock.cli.display import incomplete_option, json_option, shown
from penstock.cli.durations import time_of


@click.command()
@click.argument("topic")
@click.argument("key")
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of messages.")
@click.option("--since", metavar="TIME", help="Only messages stored at or after this time: 2026-12-01T08:00.")
@click.option("--until", metavar="TIME", help="Only messages stored until this time.")
@click.option("--raw", is_flag=True, help="Bodies only, byte for byte, each with a newline.")
@incomplete_option
@json_option
@click.pass_obj
def find(
    server: str,
    topic: str,
    key: str,
    count: int | None,
    since: str | None,
    until: str | None,
    raw: bool,
    allow_incomplete: bool,
    as_json: bool,
) -> None:
    """Print the stored messages of TOPIC with this KEY, the newest first.

    KEY is a message's key (of a device's message its client id, or what a topic rule makes it), one word of it, or
    its id.

    \b
    Examples:
      penstock find orders customer-7             each with the time at which it was stored
      penstock find orders customer-7 -n 1 --raw  the last one's body
      penstock find plant d7 --json | jq .offset
      penstock find plant d7 --since 2026-12-01T08:00 --until 2026-12-01T09:00
    """
    first = None if since is None else time_of(since, "--since")
    last = None if until is None else time_of(until, "--until")
    if first is not None and last is not None and last < first:
        raise click.BadParameter(f"{until} is before --since", param_hint="--until")
    any_found = False
    found = find_messages(
        topic,
        key,
        servers=server,
        since=0 if first is None else first,
        until=last,
        allow_incomplete=allow_incomplete,
    )
    for message in islice(found, count):
        any_found = True
        stored = datetime.fromtimestamp(message.stored_ms / 1000, UTC).isoformat(timespec="milliseconds")
        show_message(message, raw, as_json, when=stored.replace("+00:00", "Z"))
    if not any_found:
        click.echo(f"(no message of {shown(topic)} has the key {shown(key)})", err=True)
