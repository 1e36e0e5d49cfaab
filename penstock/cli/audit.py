"""``penstock audit``: who did what to what, from where, and whether it was allowed."""

from __future__ import annotations

import click

from penstock.blocking.admin import Admin
from penstock.cli.display import json_option, named, print_rows
from penstock.cli.durations import DURATION, shown_time
from penstock.client.audit_tasks import Audited
from penstock.world import RealClock


@click.command()
@click.option("--since", "age_s", type=DURATION, default="7d", show_default=True, help="How far back: 30m, 6h, 7d.")
@click.option(
    "-n", "--count", default=100, show_default=True, type=click.IntRange(min=1), help="How many of the latest."
)
@click.option("--user", default="", callback=named, help="Of this user only.")
@click.option("--refused", is_flag=True, help="Only refusals.")
@json_option
@click.pass_obj
def audit(server: str, age_s: float, count: int, user: str, refused: bool, as_json: bool) -> None:
    """Show logins, refusals and acts of administration, the latest last.

    They are messages of the topic %AUDIT%, so `penstock tail %AUDIT%` follows them.

    \b
    Examples:
      penstock audit --refused
      penstock audit --user ada --since 30d
      penstock audit --json | jq 'select(.act == "DeleteTopic")'
    """
    since_ms = max(0, RealClock().wall_ms() - int(age_s * 1000))
    with Admin(server) as admin:
        rows = [_row(one, as_json) for one in admin.audit(since_ms, count=count, user=user, refused=refused)]
    columns = ("time", "outcome", "act", "name", "user", "by", "address", "server", "why", "times")
    print_rows(rows, columns, as_json=as_json, empty="no entries; ports that ask for no login write none")


def _row(one: Audited, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "time": shown_time(one.time_ms),
        "outcome": "allowed" if one.allowed else "refused",
        "act": one.act,
        "name": one.name or None,
        "user": one.user or None,
        "by": f"{one.how}, client {one.client}" if one.client else one.how or None,
        "address": one.address or None,
        "server": one.server,
        "why": one.why or None,
        "times": one.times,
    }
    if as_json:
        row |= {"time_ms": one.time_ms, "allowed": one.allowed, "how": one.how or None, "client": one.client or None}
    return row
