"""``penstock group``: consumer groups of all brokers of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import click

from penstock.blocking import bootstrap
from penstock.blocking.admin import Admin
from penstock.cli.display import confirm, incomplete_option, json_option, named, print_json, print_rows, to_list
from penstock.cli.durations import place_of
from penstock.client.group_tasks import Moved, groups_at, states_of
from penstock.errors import GroupNotFound, ResetIncomplete
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail, GroupRow


@click.group()
def group() -> None:
    """Look at consumer groups and their lag; reset or delete one."""


@group.command("list")
@incomplete_option
@json_option
@click.pass_obj
def list_groups(server: str, allow_incomplete: bool, as_json: bool) -> None:
    """List the groups of all brokers with members and lag.

    \b
    Examples:
      penstock group list
      penstock group list --json | jq 'select(.lag > 1000)'
    """
    found: list[GroupRow] = []
    with bootstrap(server) as routes, Admin(server) as admin:
        for route in to_list(routes.holders(), "the groups", allow_incomplete):
            found += admin.run(groups_at(route))
    rows = [
        {"group": one.group, "members": one.members, "queues": one.queues, "lag": one.lag} for one in states_of(found)
    ]
    print_rows(rows, ("group", "members", "queues", "lag"), as_json=as_json, empty="no groups yet")


@group.command()
@click.argument("name")
@incomplete_option
@json_option
@click.pass_obj
def show(server: str, name: str, allow_incomplete: bool, as_json: bool) -> None:
    """Show the reader of each queue of a group and its lag; for a named position, the gateways that hold it.

    \b
    Examples:
      penstock group show billing
    """
    rows: list[dict[str, Any]] = []
    with bootstrap(server) as routes:
        for route in to_list(routes.holders(), f"group {name!r}", allow_incomplete):
            try:
                detail = routes.link(route.address).ask(DescribeGroup(name), GroupDetail)
            except GroupNotFound:
                continue
            holder = {queue: member.member for member in detail.members for queue in member.queues}
            for one in detail.lags:
                committed = None if one.offset < 0 else one.offset
                row = {
                    "group": name,
                    "broker": route.broker,
                    "queue": one.queue,
                    "committed": committed,
                    "end": one.end,
                }
                row |= {"lag": _lag(one.offset, one.end), "member": holder.get(one.queue)}
                rows.append(row | {"held_by": ", ".join(detail.holders) or None, "filter": detail.filter or None})
    if not rows:
        raise GroupNotFound(f"there is no group {name}", hint="`penstock group list` shows all")
    print_rows(rows, ("queue", "broker", "committed", "end", "lag", "member", "held_by", "filter"), as_json=as_json)


@group.command()
@click.argument("name")
@click.argument("topic", default="")
@click.option("--to", metavar="PLACE", help="earliest, latest, an offset, or a time: 2026-12-01T08:00.")
@click.option("--by", type=int, help="Number of messages to skip; if negative, to go back.")
@click.option(
    "--broker", default="", metavar="NAME", callback=named, help="Only on this broker; on all of them if left out."
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def reset(
    server: str,
    name: str,
    topic: str,
    to: str | None,
    by: int | None,
    broker: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move a group's offsets, in TOPIC or in all topics that it has read, and show them before and after.

    Stop its consumers first. An offset outside a queue becomes the nearest offset in it. If a broker is away, nothing
    is moved; if one fails while others move the group, the table says which: repeat the command then, after --by with
    --broker.

    \b
    Examples:
      penstock group reset billing --to earliest --dry-run
      penstock group reset billing orders --to 2026-12-01T08:00
      penstock group reset billing orders --by -100 --yes
    """
    place = None if to is None else place_of(to, "--to")
    with Admin(server) as admin:
        if not (dry_run or yes):
            planned = admin.reset_group(name, topic, to=place, by=by, dry_run=True, broker=broker)
            moving = sum([one.before != one.after for one in planned])
            confirm(f"Move group {name} in {moving} of {len(planned)} queues?", f"group {name} stays where it is")
        try:
            moved = admin.reset_group(name, topic, to=place, by=by, dry_run=dry_run, broker=broker)
        except ResetIncomplete as error:
            _print_moved(cast("Sequence[Moved]", error.moved), as_json=as_json)
            raise
    _print_moved(moved, is_moved=not dry_run, as_json=as_json)


def _print_moved(moved: Sequence[Moved], *, as_json: bool, is_moved: bool = True) -> None:
    rows = [
        {
            "queue": one.queue.name,
            "broker": one.queue.broker,
            "before": None if one.before < 0 else one.before,
            "after": one.after,
            "end": one.end,
            "moved": is_moved,
        }
        for one in moved
    ]
    print_rows(rows, ("queue", "broker", "before", "after", "end"), as_json=as_json, empty="no queue was moved")


@group.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(server: str, name: str, yes: bool, as_json: bool) -> None:
    """Delete a group: its offsets and its waiting retries. Its dead letters stay.

    \b
    Examples:
      penstock group delete billing
    """
    with Admin(server) as admin:
        queues = sum([len(one.detail.lags) for one in admin.group(name)])
        if not yes:
            confirm(f"Delete group {name} with its offsets in {queues} queues?", f"group {name} stays")
        admin.delete_group(name)
    if as_json:
        print_json({"group": name, "queues": queues, "deleted": True})
    else:
        click.echo(f"group {name} is deleted")


def _lag(offset: int, end: int) -> int:
    """Messages behind the last commit; all of them where the group never committed."""
    return end - max(offset, 0)
