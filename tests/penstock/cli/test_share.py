"""``penstock share`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import bootstrap
from penstock.cli import share
from penstock.protocol.requests.filters import OpenedFilters, OpenFilters
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.shares import ListShares, TakeShared

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_shared_subscriptions_are_listed_with_their_lag(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("share", "list").stderr == "(no shared subscriptions)\n"
    with bootstrap(real_cluster.servers) as routes:
        link = routes.link(routes.brokers()[0].address)
        link.ask(OpenFilters("gw", ("$share/w/jobs/#", "$share/v/x")), OpenedFilters)
        penstock("produce", "jobs", "a", "b", "--mqtt-topic", "jobs/1")
        link.ask(TakeShared("$share/w/jobs/#", "t", 1), Pulled)
    (idle, row) = rows("share", "list")
    assert (idle["share"], idle["lag"]) == ("$share/v/x", 0)
    assert row == {
        "share": "$share/w/jobs/#",
        "broker": "broker-a",
        "gateways": 1,
        "sessions": 0,
        "on_way": 1,
        "owed": 0,
        "lag": 2,
    }
    assert "$share/w/jobs/#" in penstock("share", "list").stdout


def test_every_page_is_asked_for(rows: Rows, real_cluster: Any, monkeypatch: Any) -> None:
    names = tuple(f"$share/w/{number}" for number in range(5))
    with bootstrap(real_cluster.servers) as routes:
        routes.link(routes.brokers()[0].address).ask(OpenFilters("gw", names), OpenedFilters)
    monkeypatch.setattr(share, "ListShares", lambda after: ListShares(after, count_max=2))
    assert tuple(row["share"] for row in rows("share", "list")) == names
