"""``penstock replica`` against a real broker without other copies; groups: ``tests/endtoend/test_replicas.py``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from penstock.cli.replica import _one
from penstock.errors import NoRoute

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_a_key_is_made_anew_each_time(penstock: Penstock) -> None:
    keys = {penstock("replica", "key").stdout for _ in range(2)}
    assert len(keys) == 2
    assert all(re.fullmatch(r"[0-9a-f]{64}\n", one) for one in keys)


def test_a_broker_alone_is_a_group_of_one_copy(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("produce", "orders", "1").exit_code == 0
    [row] = rows("replica", "list")
    assert (row["broker"], row["node"], row["role"], row["behind"], row["level"]) == (
        "broker-a",
        "broker-a",
        "leader",
        0,
        True,
    )
    said = penstock("replica", "list")
    assert "leads" in said.stdout
    assert "if its disk is lost, all is lost" in said.stderr
    [route] = rows("broker", "list")
    [by_address] = rows("replica", "list", "--address", route["address"])
    assert by_address["address"] == row["address"] == route["address"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("promote", "b"), "has no node b"),
        (("copies", "2"), "has no other copies"),
        (("remove", "broker-a", "--yes"), "has no other copies"),
        (("force-leader", "b", "--lost", "broker-a"), "has no node b"),
        (("list", "--broker", "x"), "no broker 'x'"),
    ],
)
def test_what_a_group_of_one_cannot_do_is_said(
    penstock: Penstock, real_cluster: Any, command: tuple[str, ...], why: str
) -> None:
    refused = penstock("replica", *command)
    assert refused.exit_code in (2, 3)
    assert why in refused.stderr


def test_without_a_broker_none_is_asked_for_by_name() -> None:
    with pytest.raises(NoRoute, match="there is no broker"):
        _one([], "")
