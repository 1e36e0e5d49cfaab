"""``penstock produce`` against real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result

from topicmap.queues import encode_level

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


def stored(rows: Rows, topic: str) -> list[dict[str, Any]]:
    return rows("consume", topic, "--end")


def test_a_body_is_stored_with_all_that_was_given(rows: Rows) -> None:
    (receipt,) = rows("produce", "orders", "hi", "-k", "7", "-t", "paid", "-p", "a=b=c", "--mqtt-topic", "orders/7")
    (message,) = stored(rows, "orders")
    assert (receipt["topic"], receipt["level"], receipt["status"]) == ("orders", "disk", "ok")
    assert (receipt["queue"], receipt["offset"], receipt["id"]) == (message["queue"], message["offset"], message["id"])
    assert (message["body"], message["key"], message["tag"], message["mqtt_topic"]) == ("hi", "7", "paid", "orders/7")
    assert message["properties"] == {"a": "b=c"}


def test_standard_input_is_one_message_or_one_per_line(rows: Rows) -> None:
    rows("produce", "whole", stdin=b"a\nb\n")
    assert [message["body"] for message in stored(rows, "whole")] == ["a\nb\n"]
    rows("produce", "lines", "--lines", stdin=b"a\nb\r\n\nlast")
    assert sorted(message["body"] for message in stored(rows, "lines")) == ["", "a", "b", "last"]


def test_more_lines_than_one_batch_are_all_stored(rows: Rows) -> None:
    lines = b"".join(b"%d\n" % at for at in range(2500))
    assert len(rows("produce", "lines", "--lines", stdin=lines)) == 2500
    assert sorted(int(message["body"]) for message in stored(rows, "lines")) == list(range(2500))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "zlib"])
def test_a_large_body_that_is_stored_compressed_is_shown_as_it_was(rows: Rows, compression: str) -> None:
    rows("produce", "large", "--compression", compression, stdin=b"a line\n" * 2000)
    assert [message["body"] for message in stored(rows, "large")] == ["a line\n" * 2000]


def test_the_line_for_people_says_where(penstock: Penstock) -> None:
    shown = penstock("produce", "orders", "x", "-k", "k").stdout
    assert "orders:" in shown
    assert " offset 0  broker-a  disk" in shown


def test_a_property_without_equals_is_wrong_use(penstock: Penstock) -> None:
    assert penstock("produce", "orders", "x", "-p", "a").exit_code == 2


def test_an_illegal_topic_is_refused(penstock: Penstock) -> None:
    result = penstock("produce", "a/b", "x")
    assert result.exit_code == 2
    assert "error: " in result.stderr


def test_lines_come_from_standard_input_and_not_from_a_file_that_is_named(penstock: Penstock, rows: Rows) -> None:
    result = penstock("produce", "orders", "--lines", "orders.ndjson")
    assert result.exit_code == 2
    assert "--lines reads standard input; give no BODY" in result.stderr
    assert rows("topic", "list") == []


def test_one_message_that_is_not_stored_is_reported_with_its_own_error(penstock: Penstock) -> None:
    error = json.loads(penstock("produce", "a/b", "x", "--json").stderr)
    assert (error["error"], error["code"]) == ("InvalidTopic", 22)
    assert "one level of an MQTT name" in error["message"]
    for topic in ("a/b", "mqtt|sessions"):
        error = json.loads(penstock("produce", topic, "x", "y", "--json").stderr)
        assert error["error"] == "SendManyError"
        assert "2 of 2 messages have no receipt" in error["message"]


def test_a_topic_has_any_first_level_as_its_name_in_all_commands(penstock: Penstock, rows: Rows) -> None:
    for name in ("température", "日" * 30):
        assert rows("produce", name, "x", "--key", "k")[0]["topic"] == encode_level(name)
        assert len(rows("topic", "show", name)) == 4
        [found] = rows("consume", name, "-e")
        assert (found["mqtt_topic"], found["key"], found["key_encoding"]) == (name, "k", "utf-8")
        [again] = rows("find", name, "k")
        assert again == found


def test_a_name_that_belongs_to_another_topic_is_warned_of_and_stored(penstock: Penstock, rows: Rows) -> None:
    result = penstock("produce", "orders", "x", "--mqtt-topic", "plant/d7/state")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "warning: without a topic rule plant/d7/state belongs to the topic plant, not orders"
    )
    assert [message["mqtt_topic"] for message in stored(rows, "orders")] == ["plant/d7/state"]
    assert penstock("produce", "plant", "x", "--mqtt-topic", "plant/d7/state").stderr == ""


def test_a_delayed_message_is_shown_with_its_timer_which_cancels_it(penstock: Penstock, rows: Rows) -> None:
    [receipt] = rows("produce", "orders", "x", "--delay", "2h")
    [listed] = rows("timer", "list")
    assert [receipt[name] for name in ("timer", "due", "broker")] == [
        listed[name] for name in ("timer", "due", "broker")
    ]
    shown = penstock("produce", "orders", "y", "z", "--at", "2199-01-01").stderr
    assert "at most 40 days" in shown
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
    shown = penstock("produce", "orders", "y", "z", "--at", tomorrow).stdout.splitlines()
    assert [datetime.fromisoformat(line.rpartition(" due ")[2]) for line in shown] == [
        datetime.fromisoformat(tomorrow)
    ] * 2
    assert penstock("timer", "cancel", receipt["timer"], "--yes").exit_code == 0
    assert len(rows("timer", "list")) == 2
    assert stored(rows, "orders") == []


def test_a_time_that_is_none_is_wrong_use(penstock: Penstock) -> None:
    for given in (["--delay", "5s", "--at", "2027-01-01"], ["--at", "soon"], ["--delay", "soon"], ["--delay", "41d"]):
        assert penstock("produce", "orders", "x", *given).exit_code == 2
