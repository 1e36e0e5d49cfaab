"""``penstock message`` against real servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from penstock.blocking import Admin, Consumer
from tests.patience import PATIENCE_S

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def test_a_message_is_shown_by_its_offset_id_whatever_queue_it_is_in(penstock: Penstock, rows: Rows) -> None:
    rows("produce", "orders", "1", "2", "3")
    for one in rows("consume", "orders", "--end"):
        assert rows("message", "show", one["offset_id"]) == [one]
        assert rows("message", "find", "orders", one["id"]) == [one]
    assert penstock("message", "show", one["offset_id"], "--raw").stdout == one["body"] + "\n"
    broker, _, position = one["offset_id"].rpartition(":")
    for wrong in (int(position) + 1, 0, 1 << 60):
        refused = penstock("message", "show", f"{broker}:{wrong}")
        assert f"no message is stored at position {wrong}" in refused.stderr
    assert penstock("message", "show", "7").exit_code == 2
    rows("topic", "purge", "orders", "--yes")
    assert penstock("message", "show", one["offset_id"]).exit_code == 3


def test_messages_of_a_time_are_found_by_key_and_read_without_one(penstock: Penstock, rows: Rows) -> None:
    rows("produce", "orders", "1", "2", "-k", "k")
    for since, count in (("2020-01-01", 2), ("2200-01-01", 0)):
        assert len(rows("find", "orders", "k", "--since", since)) == count
        assert len(rows("find", "orders", "k", "--until", since)) == 2 - count
        assert len(rows("consume", "orders", "-o", since, "--end")) == count
    assert "neither earliest, latest nor a time" in penstock("consume", "orders", "-o", "soon").stderr


def test_the_life_of_a_message_is_told(penstock: Penstock, rows: Rows, real_cluster: Any) -> None:
    rows("topic", "create", "orders", "--queues", "1", "--trace-every", "1")
    [sent] = rows("produce", "orders", "1")
    with Consumer("billing", "orders", servers=real_cluster.servers, start="earliest") as consumer:
        [message] = consumer.poll(PATIENCE_S)
        consumer.nack(message, 0)
        consumer.commit()
        [again] = consumer.poll(PATIENCE_S)
        assert again.attempts == 1
    with Admin(real_cluster.servers) as admin:
        told = admin.trace(message.id)
        while "acknowledged" not in {one.event for one in told}:
            told = admin.trace(message.id)
    events = list(dict.fromkeys(one.event for one in told))  # a rebalance may have it delivered twice
    assert events == ["produced", "stored", "delivered", "retried", "acknowledged"]
    assert [one.time_ms for one in told] == sorted(one.time_ms for one in told)
    assert {one.who for one in told[2:]} == {"billing"}
    shown = rows("message", "trace", message.id)
    assert [row["event"] for row in shown] == [one.event for one in told]
    assert (shown[1]["broker"], shown[1]["queue"], shown[1]["offset"]) == ("broker-a", "orders:0", 0)
    assert "billing" in penstock("message", "trace", message.id).stdout
    assert sent
    assert "no trace of this message" in penstock("message", "trace", "nope").stderr
