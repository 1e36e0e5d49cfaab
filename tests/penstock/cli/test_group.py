"""``penstock group`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Consumer, bootstrap
from penstock.protocol.requests.groups import HeldOffsets, HoldOffsets, Progress

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_groups_are_listed_with_their_lag(penstock: Penstock, rows: Rows) -> None:
    assert penstock("group", "list").stderr == "(no groups yet)\n"
    rows("produce", "orders", "a", "b", "c", "-k", "k")
    rows("consume", "orders", "-g", "billing", "-n", "1")
    (row,) = rows("group", "list")
    assert row == {"group": "billing", "members": 0, "queues": 4, "lag": 2}
    assert "billing" in penstock("group", "list").stdout


def test_a_group_is_shown_with_its_members(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    rows("produce", "orders", "a", "b", "-k", "k")
    with Consumer("billing", "orders", servers=real_cluster.servers, start="earliest"):
        shown = rows("group", "show", "billing")
        assert len(shown) == 4
        assert len({row["member"] for row in shown}) == 1
        assert sorted((row["committed"], row["lag"]) for row in shown if row["lag"]) == [(None, 2)]
        assert "member-" in penstock("group", "show", "billing").stdout


def test_a_position_that_subscriptions_keep_is_shown_with_the_gateways_that_hold_it(
    penstock: Penstock, rows: Rows, real_cluster: Any
) -> None:
    rows("produce", "orders", "a", "b", "-k", "k")
    with bootstrap(real_cluster.servers) as routes:
        [route] = routes.brokers()
        for holder in ("gw/1", "gw/2"):
            request = HoldOffsets("billing", holder, 60.0, (Progress("orders:0", 0, 0),))
            routes.link(route.address).ask(request, HeldOffsets)
    (shown,) = rows("group", "show", "billing")
    assert (shown["queue"], shown["committed"], shown["member"]) == ("orders:0", 0, None)
    assert shown["held_by"] == "gw/1, gw/2"


def test_an_unknown_group_is_status_3(penstock: Penstock) -> None:
    result = penstock("group", "show", "nope")
    assert result.exit_code == 3
    assert "there is no group nope" in result.stderr
