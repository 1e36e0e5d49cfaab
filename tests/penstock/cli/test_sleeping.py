"""``penstock timer``, ``transaction`` and ``dlq`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from tests.penstock.admin_scene import begin, delay, kill

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_delayed_messages_are_listed_and_taken_back(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("timer", "list").stderr == "(no delayed messages)\n"
    later, sooner = delay(real_cluster.servers, b"1", 7_200_000), delay(real_cluster.servers, b"2")
    listed = rows("timer", "list")
    assert [row["timer"] for row in listed] == [f"{one.id}@{one.due_ms}" for one in (sooner, later)]
    assert [(row["topic"], row["key"], row["broker"], row["damaged"]) for row in listed] == [
        ("orders", "k", "broker-a", False)
    ] * 2
    unconfirmed = penstock("timer", "cancel", listed[0]["timer"], stdin=b"n\n")
    assert (unconfirmed.exit_code, len(rows("timer", "list"))) == (2, 2)
    assert penstock("timer", "cancel", listed[0]["timer"], "--yes").exit_code == 0
    assert [row["timer"] for row in rows("timer", "list")] == [listed[1]["timer"]]
    gone = penstock("timer", "cancel", listed[0]["timer"], "--yes")
    assert (gone.exit_code, "there is no timer" in gone.stderr) == (3, True)
    assert penstock("timer", "confirm-clock", "--broker", "nope").exit_code == 3
    assert "is no timer" in penstock("timer", "cancel", "x").stderr


def test_an_operator_decides_transactions(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("transaction", "list").stderr == "(no transactions without an outcome)\n"
    first, second = begin(real_cluster.servers, b"1"), begin(real_cluster.servers, b"2")
    listed = rows("transaction", "list")
    assert [(row["id"], row["group"], row["topic"], row["checks"], row["parked"]) for row in listed] == [
        (str(first), "payments", "orders", 0, None),
        (str(second), "payments", "orders", 0, None),
    ]
    assert rows("transaction", "list", "--parked") == []
    assert penstock("transaction", "check", str(first)).exit_code == 0
    assert penstock("transaction", "commit", str(first)).exit_code == 0
    assert penstock("transaction", "rollback", str(second), stdin=b"n\n").exit_code == 2
    assert len(rows("transaction", "list")) == 1
    assert penstock("transaction", "rollback", str(second), "--yes").exit_code == 0
    assert rows("transaction", "list") == []
    assert [row["body"] for row in rows("consume", "orders", "-n", "1")] == ["1"]
    stands = penstock("transaction", "rollback", str(first), "--yes")
    assert (stands.exit_code, "was committed already" in stands.stderr) == (1, True)
    assert "there is no half" in penstock("transaction", "commit", "7").stderr


def test_dead_letters_are_shown_and_sent_again_once(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    assert penstock("dlq", "list").stderr == "(no dead letters)\n"
    assert "has no dead letters" in penstock("dlq", "show", "billing").stderr
    kill(real_cluster.servers, b"1", b"2")
    assert rows("dlq", "list") == [{"group": "billing", "broker": "broker-a", "letters": 2, "waiting": 2}]
    shown = rows("dlq", "show", "billing")
    assert [(row["body"], row["origin"], row["attempts"], row["reason"], row["key"]) for row in shown] == [
        ("1", "orders", 1, "no way", "k"),
        ("2", "orders", 1, "no way", "k"),
    ]
    assert [row["body"] for row in rows("dlq", "show", "billing", "--count", "1")] == ["2"]
    unconfirmed = penstock("dlq", "redrive", "billing", stdin=b"n\n")
    assert (unconfirmed.exit_code, "no dead letter is sent" in unconfirmed.stderr) == (2, True)
    assert "2 dead letters of 'billing' will be sent" in unconfirmed.stderr
    assert penstock("dlq", "redrive", "nope").exit_code == 3
    done = rows("dlq", "redrive", "billing", "--yes")
    assert [(row["topic"], row["result"]) for row in done] == [("%RETRY%billing", "sent")] * 2
    own = rows("consume", "orders", "--group", "billing", "-n", "2")
    assert [(row["body"], row["topic"]) for row in own] == [("1", "orders"), ("2", "orders")]
    assert [row["body"] for row in rows("consume", "orders", "-n", "2")] == ["1", "2"]  # no other group gets it again
    done = rows("dlq", "redrive", "billing", "--again", "--all-groups", "--yes")
    assert [(row["topic"], row["result"]) for row in done] == [("orders", "sent")] * 2
    assert penstock("dlq", "redrive", "billing", "--all-groups", "--to", "x", "--yes").exit_code == 2
    again = rows("consume", "orders", "-n", "4")
    assert [row["body"] for row in again] == ["1", "2", "1", "2"]
    assert [(row["properties"], row["mqtt_topic"]) for row in again[2:]] == [({"p": "v"}, "orders/1")] * 2
    assert rows("dlq", "redrive", "billing", "--yes") == []
    assert rows("dlq", "list")[0]["waiting"] == 0
    assert len(rows("dlq", "redrive", "billing", "--again", "--to", "elsewhere", "--yes")) == 2
    assert [row["body"] for row in rows("consume", "elsewhere", "-n", "2")] == ["1", "2"]


def test_a_dead_letter_that_is_refused_stays_and_the_next_call_goes_on_there(
    penstock: Penstock, rows: Rows, real_cluster: Any
) -> None:
    kill(real_cluster.servers, b"1", b"2")
    refused = penstock("dlq", "redrive", "billing", "--to", "%DLQ%x", "--yes", "--json")
    assert refused.exit_code == 2
    assert "only the broker stores messages" in refused.stdout
    assert rows("dlq", "list")[0]["waiting"] == 2
    assert [row["result"] for row in rows("dlq", "redrive", "billing", "--yes")] == ["sent", "sent"]
