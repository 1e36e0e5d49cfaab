"""``penstock group``: consumer groups of all brokers of the cluster."""

from __future__ import annotations

from typing import Any

import click

from penstock.blocking import bootstrap
from penstock.cli.display import incomplete_option, json_option, print_rows, to_list
from penstock.errors import GroupNotFound
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail, GroupNames, ListGroups


@click.group()
def group() -> None:
    """Look at consumer groups and their lag."""


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
    rows: dict[str, dict[str, Any]] = {}
    with bootstrap(server) as routes:
        for route in to_list(routes.holders(), "the groups", allow_incomplete):
            link = routes.link(route.address)
            for name in link.ask(ListGroups(), GroupNames).groups:
                detail = link.ask(DescribeGroup(name), GroupDetail)
                row = rows.setdefault(name, {"group": name, "members": 0, "queues": 0, "lag": 0})
                row["members"] = max(row["members"], len(detail.members))
                row["queues"] += len(detail.lags)
                row["lag"] += sum(_lag(one.offset, one.end) for one in detail.lags)
    ordered = [rows[name] for name in sorted(rows)]
    print_rows(ordered, ("group", "members", "queues", "lag"), as_json=as_json, empty="no groups yet")


@group.command()
@click.argument("name")
@incomplete_option
@json_option
@click.pass_obj
def show(server: str, name: str, allow_incomplete: bool, as_json: bool) -> None:
    """Show who reads which queue in a group, and how far; of a named position, which gateways hold it.

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


def _lag(offset: int, end: int) -> int:
    """Messages behind the last commit; all of them where the group never committed."""
    return end - max(offset, 0)
