"""``penstock top``: live rates of topics and groups, and the groups' lag."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import json_option, print_json, print_rows
from penstock.cli.durations import DURATION
from penstock.protocol.requests.sessions import GATEWAYS_TOPICS
from penstock.world import RealClock, pause

_COLUMNS: Final = ("name", "kind", "per_s", "messages", "lag")
_CLEAR: Final = "\x1b[H\x1b[2J"


@click.command()
@click.option("--every", type=DURATION, default="2s", metavar="TIME", help="Time between updates.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after this number of updates.")
@json_option
@click.pass_obj
def top(server: str, every: float, count: int | None, as_json: bool) -> None:
    """Show the rate of each topic and each group, busiest first, and update it until Ctrl-C.

    A topic's rate counts stored messages a second; a group's rate counts committed messages a second.

    \b
    Examples:
      penstock top
      penstock top --every 10s -n 1 --json | jq 'select(.lag > 1000)'
    """
    clock = RealClock()
    with Admin(server) as admin:
        before, before_s = _look(admin), clock.monotonic()
        looks = 0
        while count is None or looks < count:
            pause(every)
            now, now_s = _look(admin), clock.monotonic()
            _show(_rates(before, now, now_s - before_s), as_json)
            before, before_s, looks = now, now_s, looks + 1


def _look(admin: Admin) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By kind and name: a count that grows with each message, the number of messages, and the lag."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    names = dict.fromkeys(one.topic for one in admin.topics() if one.topic not in GATEWAYS_TOPICS)
    for name in names:
        ends = messages = 0
        for one in admin.topic(name):
            ends += sum([bound.end for bound in one.bounds])
            messages += one.messages
        found["topic", name] = ends, messages, 0
    for group in admin.groups():
        passed = sum([max(lag.offset, 0) for at in admin.group(group.group) for lag in at.detail.lags])
        found["group", group.group] = passed, 0, group.lag
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


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row)
        return
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    print_rows(rows, _COLUMNS, as_json=False, empty="no topics yet")
