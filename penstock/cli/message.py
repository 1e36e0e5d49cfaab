"""``penstock message``: finds, shows and traces single messages."""

from __future__ import annotations

import click

from penstock.blocking.admin import Admin
from penstock.cli.consume import show_message
from penstock.cli.display import json_option, print_rows
from penstock.cli.durations import shown_time
from penstock.cli.find import find
from penstock.client.message_tasks import TraceRow


@click.group()
def message() -> None:
    """Find, show and trace single messages."""


message.add_command(find)


@message.command()
@click.argument("offset_id")
@click.option("--raw", is_flag=True, help="The body only, byte for byte, with a newline.")
@json_option
@click.pass_obj
def show(server: str, offset_id: str, raw: bool, as_json: bool) -> None:
    """Print the message that is stored at OFFSET_ID, which is BROKER:POSITION.

    \b
    Examples:
      penstock message show broker-a:40213
      penstock find orders customer-7 --json | jq -r .offset_id
    """
    with Admin(server) as admin:
        found = admin.message(offset_id)
    show_message(found, raw, as_json, when=shown_time(found.stored_ms))


@message.command()
@click.argument("id")
@json_option
@click.pass_obj
def trace(server: str, id: str, as_json: bool) -> None:
    """Show the trace of a message: when and where it was stored, delivered, acknowledged and retried.

    ID is the message's unique id, or its offset id if it has none. Turn tracing on for each topic, for some messages
    or all: `penstock topic change orders --trace-every 1`.

    \b
    Examples:
      penstock message trace 5fd4cf0f28a9b1c3-00000000002a
    """
    with Admin(server) as admin:
        rows = [_row(one, as_json) for one in admin.trace(id)]
    columns = ("time", "event", "broker", "queue", "offset", "who", "more")
    print_rows(rows, columns, as_json=as_json, empty="no trace of this message: was tracing on for its topic?")


def _row(one: TraceRow, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "time": shown_time(one.time_ms),
        "event": one.event,
        "broker": one.broker or None,
        "queue": one.queue or None,
        "offset": one.offset,
        "who": one.who or None,
    }
    if as_json:
        return row | {"time_ms": one.time_ms} | one.more
    return row | {"more": ", ".join([f"{name}={value}" for name, value in one.more.items()]) or None}
