"""``penstock top``: live rates of topics and groups, and the groups' lag."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import json_option, print_json, print_rows
from penstock.cli.durations import DURATION
from penstock.client.replica_words import state_of
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.world import RealClock, pause

_COLUMNS: Final = ("name", "kind", "per_s", "messages", "lag")
_CLEAR: Final = "\x1b[H\x1b[2J"


@click.command()
@click.option("--every", type=DURATION, default="2s", metavar="TIME", help="Time between updates.")
@click.option("--rows", type=click.IntRange(1), default=50, help="Maximum number of rows: the busiest.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of updates.")
@json_option
@click.pass_obj
def top(server: str, every: float, rows: int, count: int | None, as_json: bool) -> None:
    """Show the rates of the busiest topics and groups, and update them until Ctrl-C.

    A topic's rate counts stored messages a second; a group's rate counts committed messages a second. If a broker's log
    has several copies, a line names the leader and the nodes that are behind.

    \b
    Examples:
      penstock top
      penstock top --every 10s -n 1 --rows 1000 --json | jq 'select(.lag > 1000)'
    """
    if not every:
        raise click.BadParameter("the time between updates is more than 0", param_hint="--every")
    clock = RealClock()
    with Admin(server) as admin:
        before, before_s = _look(admin), clock.monotonic()
        looks = 0
        while count is None or looks < count:
            pause(every)
            now, now_s = _look(admin), clock.monotonic()
            _show(_rates(before, now, now_s - before_s), rows, as_json)
            _show_copies(admin, as_json)
            before, before_s, looks = now, now_s, looks + 1


def _look(admin: Admin) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By kind and name: a count that grows with each message, the number of messages, and the lag."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for topic in admin.topic_counts():
        if topic.topic not in GATEWAYS_TOPICS:
            found["topic", topic.topic] = topic.stored, topic.messages, 0
    for group in admin.groups():
        found["group", group.group] = group.passed, 0, group.lag
    return found


def _rates(
    before: dict[tuple[str, str], tuple[int, int, int]],
    now: dict[tuple[str, str], tuple[int, int, int]],
    seconds: float,
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (kind, name), (grown, messages, lag) in now.items():
        more = grown - before.get((kind, name), (grown, 0, 0))[0]
        is_topic = kind == "topic"
        row: dict[str, Any] = {"name": name, "kind": kind, "per_s": round(max(0, more) / seconds, 1)}
        rows.append(row | {"messages": messages if is_topic else None, "lag": None if is_topic else lag})
    return sorted(rows, key=lambda row: (-row["per_s"], -int(row["lag"] or 0), str(row["name"])))


def _show(rows: list[dict[str, Any]], most: int, as_json: bool) -> None:
    left_out = len(rows) - most
    rows = rows[:most]
    if as_json:
        for row in rows:
            print_json(row)
        return
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    print_rows(rows, _COLUMNS, as_json=False, empty="no topics yet")
    if left_out > 0:
        click.echo(f"({left_out:,} less busy topics and groups are not shown: --rows)", err=True)


def _show_copies(admin: Admin, as_json: bool) -> None:
    """A line for each broker whose log has several copies; as JSON one for each copy."""
    for group in admin.replicas():
        if len(group.nodes) == 1:
            continue
        if as_json:
            for one in group.nodes:
                row = {"name": one.node, "kind": "copy", "broker": group.group, "role": one.role}
                print_json(row | {"state": state_of(one), "behind": one.behind})
        else:
            states = [f"{one.node} {state_of(one)}" for one in group.nodes]
            click.echo(f"{group.group}, epoch {group.epoch}: {'; '.join(states)}", err=True)
