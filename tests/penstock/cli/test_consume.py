"""``penstock consume`` against real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from penstock.blocking import Producer

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def orders(penstock: Penstock) -> None:
    for at in range(5):
        assert penstock("produce", "orders", str(at), "-k", "k", "-t", "odd" if at % 2 else "even").exit_code == 0


@pytest.mark.usefixtures("orders")
def test_to_the_end_and_by_count(rows: Rows) -> None:
    assert [row["body"] for row in rows("consume", "orders", "-e")] == list("01234")
    assert [row["body"] for row in rows("consume", "orders", "-n", "2")] == list("01")


@pytest.mark.usefixtures("orders")
def test_by_tag_and_queue(rows: Rows) -> None:
    assert [row["body"] for row in rows("consume", "orders", "-e", "-t", "odd")] == ["1", "3"]
    (queue,) = {row["queue"] for row in rows("consume", "orders", "-e")}
    assert rows("consume", "orders", "-e", "-q", str((queue + 1) % 4)) == []


@pytest.mark.usefixtures("orders")
def test_a_group_goes_on_where_it_ended(rows: Rows) -> None:
    assert [row["body"] for row in rows("consume", "orders", "-g", "g", "-n", "2")] == ["0", "1"]
    assert [row["body"] for row in rows("consume", "orders", "-g", "g", "-n", "3")] == ["2", "3", "4"]


@pytest.mark.usefixtures("orders")
def test_for_people_and_raw(penstock: Penstock) -> None:
    line = penstock("consume", "orders", "-n", "1").stdout
    assert line.startswith("orders:")
    assert line.endswith("/0 key=k tag=even  0\n")
    assert penstock("consume", "orders", "-e", "--raw").stdout_bytes == b"0\n1\n2\n3\n4\n"


def test_bytes_that_are_no_text_are_base64(rows: Rows) -> None:
    rows("produce", "blobs", stdin=b"\xff\x00")
    (row,) = rows("consume", "blobs", "-e")
    assert (row["encoding"], row["body"]) == ("base64", "/wA=")


def test_an_unknown_topic_is_said_and_options_that_clash_too(penstock: Penstock) -> None:
    result = penstock("consume", "nope", "-e")
    assert result.exit_code == 3
    assert "penstock topic create nope" in result.stderr
    assert penstock("consume", "orders", "-g", "g", "-e").exit_code == 2


def test_no_name_that_a_producer_has_given_commands_a_terminal(penstock: Penstock) -> None:
    assert penstock("produce", "named", "x", "-k", "k\u202e", "-t", "t\n").exit_code == 0
    assert penstock("consume", "named", "-e").output.endswith("key=k\\u202e tag=t\\n  x\n")


def test_tail_prints_what_comes_to_several_topics_and_nothing_that_was_there(penstock: Any, real_cluster: Any) -> None:
    for topic in ("orders", "plant"):
        assert penstock("produce", topic, "old").exit_code == 0
    printed: list[str] = []

    def follow() -> None:
        printed.extend(penstock("tail", "orders", "plant", "-n", "2").stdout.splitlines())

    follower = threading.Thread(target=follow)
    follower.start()
    with Producer(servers=real_cluster.servers) as producer:
        while follower.is_alive():
            producer.send("orders", b"new")
            producer.send("plant", b"new")
            follower.join(0.05)
    assert len(printed) == 2
    assert all(line.endswith("  new") for line in printed)
