"""``penstock topic`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from penstock.blocking import Producer
from penstock.errors import PenstockError
from topicmap.queues import encode_level

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_a_topic_is_created_listed_and_shown(rows: Rows) -> None:
    made = {"topic": "orders", "broker": "broker-a", "queues": 2, "level": "cache"}
    made |= {"draining": 0, "retention_s": None, "access": "rw", "trace_every": None}
    assert rows("topic", "create", "orders", "--queues", "2", "--level", "cache") == [made]
    assert rows("topic", "list") == [made | {"name": "orders"}]
    shown = rows("topic", "show", "orders")
    assert [row["queue"] for row in shown] == ["orders:0", "orders:1"]
    assert {(row["min"], row["end"], row["messages"], row["level"]) for row in shown} == {(0, 0, 0, "cache")}


def test_what_the_gateways_keep_for_themselves_is_listed_on_request(penstock: Penstock, rows: Rows) -> None:
    for topic in ("orders", "mqtt|sessions", "%24SYS"):
        assert penstock("topic", "create", topic).exit_code == 0
    assert [row["topic"] for row in rows("topic", "list")] == ["orders"]
    assert [row["topic"] for row in rows("topic", "list", "--all")] == ["%24SYS", "mqtt|sessions", "orders"]


def test_the_tables_show_the_same(penstock: Penstock) -> None:
    assert "orders: 4 queues on broker-a, level disk" in penstock("topic", "create", "orders").stdout
    assert "broker-a" in penstock("topic", "list").stdout
    assert "orders:3" in penstock("topic", "show", "orders").stdout


def test_a_list_shows_the_first_level_that_a_topic_stands_for(penstock: Penstock, rows: Rows) -> None:
    for level in ("日", "日" * 30):
        assert penstock("topic", "create", encode_level(level)).exit_code == 0
    assert [row["name"] for row in rows("topic", "list")] == ["日", "日" * 21 + "…"]
    assert "日" * 21 + "…" in penstock("topic", "list").stdout


def test_creating_it_again_is_fine_and_differently_is_not(penstock: Penstock) -> None:
    assert penstock("topic", "create", "orders").exit_code == 0
    assert penstock("topic", "create", "orders").exit_code == 0
    result = penstock("topic", "create", "orders", "--queues", "9")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")


def test_what_is_not_there_is_said_with_status_3(penstock: Penstock) -> None:
    result = penstock("topic", "show", "nope")
    assert result.exit_code == 3
    assert "there is no topic nope" in result.stderr
    assert penstock("topic", "list").stderr == "(no topics yet)\n"
    result = penstock("topic", "create", "x", "--broker", "zz")
    assert "no live broker is called zz" in result.stderr
    assert "broker-a" in result.stderr


def test_a_topic_is_deleted_and_made_again_behind_its_end(penstock: Penstock, rows: Rows) -> None:
    assert penstock("topic", "create", "orders", "--queues", "1").exit_code == 0
    assert penstock("produce", "orders", "hello").exit_code == 0
    deleted = {"topic": "orders", "broker": "broker-a", "queues": 1, "messages": 1, "deleted": True}
    assert rows("topic", "delete", "orders", "--yes") == [deleted]
    assert rows("topic", "list") == []
    again = penstock("topic", "delete", "orders", "--yes")
    assert again.exit_code == 3
    assert "there is no topic orders" in again.stderr
    assert penstock("topic", "create", "orders", "--queues", "1").exit_code == 0
    assert [(row["min"], row["end"]) for row in rows("topic", "show", "orders")] == [(1, 1)]
    said = penstock("topic", "delete", "orders", "--yes").stdout
    assert said == "orders: deleted on broker-a, with 0 messages\n"


def test_no_topic_is_deleted_without_a_yes(penstock: Penstock, rows: Rows) -> None:
    assert penstock("produce", "orders", "hello").exit_code == 0
    for said in (b"", b"n\n", b"\n"):
        refused = penstock("topic", "delete", "orders", stdin=said)
        assert refused.exit_code == 2
        assert "Delete topic orders with 1 messages?" in refused.stderr
        assert "add --yes" in refused.stderr
        assert [row["topic"] for row in rows("topic", "list")] == ["orders"]
    assert penstock("topic", "delete", "orders", stdin=b"y\n").exit_code == 0
    assert rows("topic", "list") == []


def test_topics_of_the_system_are_not_deleted(penstock: Penstock) -> None:
    assert penstock("topic", "create", "mqtt|sessions").exit_code == 0
    refused = penstock("topic", "delete", "mqtt|sessions", "--yes")
    assert refused.exit_code == 2
    assert "topic mqtt|sessions is the system's own: it is not deleted" in refused.stderr


def test_a_topic_is_changed_and_what_is_not_given_stays(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("topic", "create", "orders", "--queues", "3", "--retention", "2h").exit_code == 0
    [changed] = rows("topic", "change", "orders", "--queues", "2", "--access", "r")
    assert changed == {
        "topic": "orders",
        "broker": "broker-a",
        "queues": 2,
        "draining": 1,
        "level": "disk",
        "retention_s": 7200,
        "access": "r",
        "trace_every": None,
    }
    with Producer(servers=real_cluster.servers, timeout_s=0.5) as producer, pytest.raises(PenstockError):
        producer.send("orders", b"hello")
    said = penstock("topic", "change", "orders", "--access", "rw", "--retention", "0").stdout
    assert said.startswith("orders: 2 queues ")
    assert said.endswith(" on broker-a, level disk\n")
    assert penstock("produce", "orders", "hello").exit_code == 0
    assert penstock("topic", "change", "nope", "--queues", "1").exit_code == 3
    for option in ("--trace-every", "--retention"):
        assert f"is at most {2**63 - 1}" in penstock("topic", "create", "x", option, "9" * 30).stderr
    assert "the name is empty" in penstock("topic", "change", "orders", "--access", "r", "--broker", "").stderr
    assert "no change is given" in penstock("topic", "change", "orders").stderr
    assert "is no duration" in penstock("topic", "change", "orders", "--retention", "soon").stderr


def test_a_purge_says_that_retained_messages_stay_or_asks_about_them_too(penstock: Penstock, real_cluster: Any) -> None:
    with Producer(servers=real_cluster.servers) as producer:
        producer.send("plant", b"21", mqtt_topic="plant/1", retain=True)
    kept = penstock("topic", "purge", "plant", "--yes")
    assert "plant: 1 messages removed on broker-a" in kept.stdout
    assert "1 retained messages stay on broker-a; --retained removes them too" in kept.stderr
    asked = penstock("topic", "purge", "plant", "--retained", stdin=b"y\n")
    assert "Remove all 0 messages and 1 retained messages of topic plant?" in asked.stderr
    assert "plant: 0 messages and 1 retained messages removed on broker-a" in asked.stdout


def test_a_topic_is_purged_after_a_yes(penstock: Penstock, rows: Rows) -> None:
    assert penstock("topic", "create", "orders", "--queues", "1").exit_code == 0
    assert penstock("produce", "orders", "hello").exit_code == 0
    refused = penstock("topic", "purge", "orders", stdin=b"n\n")
    assert (refused.exit_code, "Remove all 1 messages of topic orders?" in refused.stderr) == (2, True)
    assert rows("topic", "purge", "orders", "--yes") == [
        {
            "topic": "orders",
            "broker": "broker-a",
            "messages": 1,
            "retained": 0,
            "retained_kept": 0,
            "purged": True,
        }
    ]
    assert [(row["min"], row["end"]) for row in rows("topic", "show", "orders")] == [(1, 1)]
