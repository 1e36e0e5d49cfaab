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


def test_a_group_is_moved_by_place_time_and_number_with_a_table_of_both(
    penstock: Penstock, rows: Rows, real_cluster: Any
) -> None:
    rows("topic", "create", "orders", "--queues", "1")
    rows("produce", "orders", "a", "b", "c", "d")
    rows("consume", "orders", "-g", "billing", "-n", "3")

    def moved(*arguments: str) -> tuple[Any, ...]:
        [row] = rows("group", "reset", "billing", *arguments, "--yes")
        return row["queue"], row["before"], row["after"], row["end"], row["moved"]

    assert moved("orders", "--to", "earliest", "--dry-run") == ("orders:0", 3, 0, 4, False)
    assert moved("--by", "-2") == ("orders:0", 3, 1, 4, True)
    assert moved("--by", "-9") == ("orders:0", 1, 0, 4, True)
    assert moved("--to", "latest") == ("orders:0", 0, 4, 4, True)
    assert moved("--to", "2") == ("orders:0", 4, 2, 4, True)
    assert moved("--to", "2200-01-01") == ("orders:0", 2, 4, 4, True)
    assert moved("--to", "2020-01-01") == ("orders:0", 4, 0, 4, True)
    assert [row["body"] for row in rows("consume", "orders", "-g", "billing", "-n", "1")] == ["a"]
    assert rows("group", "reset", "fresh", "orders", "--to", "2", "--yes")[0]["before"] is None
    refused = penstock("group", "reset", "billing", "--to", "0", stdin=b"n\n")
    assert (refused.exit_code, "Move group billing in 1 of 1 queues?" in refused.stderr) == (2, True)
    assert "give either `to`" in penstock("group", "reset", "billing").stderr
    for name in ("a#b", "", "%DLQ%x", "a@b/c"):
        assert penstock("group", "reset", name, "orders", "--to", "0", "--yes").exit_code == 2
    assert rows("group", "reset", "cache@host-1", "orders", "--to", "0", "--yes")[0]["after"] == 0
    assert penstock("group", "reset", "nope", "--to", "0", "--yes").exit_code == 3
    assert penstock("group", "reset", "billing", "nope", "--to", "0", "--yes").exit_code == 3
    with Consumer("billing", "orders", servers=real_cluster.servers):
        for command in (("reset", "billing", "--to", "0"), ("delete", "billing")):
            assert "has members" in penstock("group", *command, "--yes").stderr


def test_a_deleted_group_is_as_one_that_never_was(penstock: Penstock, rows: Rows) -> None:
    rows("produce", "orders", "a", "b", "-k", "k")
    rows("consume", "orders", "-g", "billing", "-n", "1")
    assert penstock("group", "delete", "billing", stdin=b"n\n").exit_code == 2
    assert rows("group", "delete", "billing", "--yes") == [{"group": "billing", "queues": 4, "deleted": True}]
    assert penstock("group", "delete", "billing", "--yes").exit_code == 3
    assert rows("group", "list") == []
    assert [row["body"] for row in rows("consume", "orders", "-g", "billing", "-n", "2")] == ["a", "b"]
