"""``penstock broker`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from penstock.blocking import Producer
from penstock.errors import PenstockError

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_a_broker_is_taken_out_of_service_and_given_back(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("produce", "orders", "1").exit_code == 0
    [row] = rows("broker", "list")
    assert (row["broker"], row["read"], row["write"]) == ("broker-a", True, True)
    refused = penstock("broker", "allow", "broker-a", "--no-write", stdin=b"n\n")
    assert (refused.exit_code, "No client will write topics of broker-a" in refused.stderr) == (2, True)
    said = penstock("broker", "allow", "broker-a", "--no-write", "--yes").stderr
    assert "no group has messages to read; nothing was read without a group in the last ten minutes" in said
    [row] = rows("broker", "allow", "broker-a", "--no-write", "--yes")
    assert (row["read"], row["write"]) == (True, False)
    with Producer(servers=real_cluster.servers, timeout_s=0.5) as producer, pytest.raises(PenstockError):
        producer.send("orders", b"2")
    assert [one["body"] for one in rows("consume", "orders", "-n", "1")] == ["1"]
    [row] = rows("broker", "allow", "broker-a", "--write")
    assert (row["read"], row["write"]) == (True, True)
    assert penstock("produce", "orders", "2").exit_code == 0
    assert penstock("broker", "allow", "broker-b", "--no-read", "--yes").exit_code == 3
    assert "broker is empty" in penstock("broker", "allow", "", "--no-read", "--yes").stderr
    assert "give read, write or both" in penstock("broker", "allow", "broker-a").stderr


def test_what_still_reads_a_broker_is_shown_before_it_is_taken_away(penstock: Penstock, rows: Rows) -> None:
    assert "no group has messages to read or members" in penstock("broker", "show", "broker-a").stderr
    rows("produce", "orders", "1", "2", "-k", "k")
    rows("consume", "orders", "-g", "billing", "-n", "1")
    rows("consume", "orders", "-g", "done", "-n", "2")
    rows("consume", "orders", "--end")
    group, topic = rows("broker", "show", "broker-a")
    assert (group["group"], group["lag"], group["members"], group["topic"]) == ("billing", 1, 0, None)
    assert (topic["group"], topic["lag"], topic["topic"]) == (None, None, "orders")
    said = penstock("broker", "allow", "broker-a", "--no-write", "--yes").stderr
    assert "still to read: billing (1 messages); read without a group" in said
    assert said.endswith(": orders\n")
    assert penstock("broker", "show", "broker-b").exit_code == 3


def test_a_setting_of_a_running_broker_changes_if_it_is_one_of_the_list(penstock: Penstock) -> None:
    said = penstock("broker", "set", "broker-a", "connection_log", "off").stdout
    assert said == "connection_log of broker-a is off until its next start\n"
    said = penstock("broker", "set", "broker-a", "connection_log").stdout
    assert said == "connection_log of broker-a is its own again\n"
    refused = penstock("broker", "set", "broker-a", "data", "/tmp")
    assert (refused.exit_code != 0, "does not change while a server runs" in refused.stderr) == (True, True)
