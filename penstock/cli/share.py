"""``penstock share``: shared subscriptions of all brokers of the cluster, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from penstock.blocking import bootstrap
from penstock.blocking.link import BlockingLink
from penstock.cli.display import incomplete_option, json_option, print_rows, to_list
from penstock.protocol.requests.shares import ListShares, SharesPage, ShareState

_COLUMNS = ("share", "broker", "gateways", "sessions", "on_way", "owed", "lag")


@click.group()
def share() -> None:
    """Look at shared subscriptions and their lag."""


@share.command("list")
@incomplete_option
@json_option
@click.pass_obj
def list_shares(server: str, allow_incomplete: bool, as_json: bool) -> None:
    """List the shared subscriptions of all brokers with their lag.

    Lag counts unsettled messages: those on their way to members, those owed (given back, they go out first) and those
    that were not sent yet. Gateways with members, and durable sessions, hold it.

    \b
    Examples:
      penstock share list
      penstock share list --json | jq 'select(.lag > 1000)'
    """
    rows: list[dict[str, Any]] = []
    with bootstrap(server) as routes:
        for route in to_list(routes.holders(), "the shared subscriptions", allow_incomplete):
            rows += [one._asdict() | {"broker": route.broker} for one in _shares(routes.link(route.address))]
    rows.sort(key=lambda row: (row["share"], row["broker"]))
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no shared subscriptions")


def _shares(link: BlockingLink) -> Iterator[ShareState]:
    after = ""
    while True:
        page = link.ask(ListShares(after), SharesPage)
        yield from page.shares
        after = page.after
        if not after:
            return
