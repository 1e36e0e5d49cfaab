"""``penstock find`` against real servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

Penstock = Callable[..., Result]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def orders(penstock: Penstock) -> None:
    for at in range(6):
        assert penstock("produce", "orders", str(at), "-k", f"customer-{at % 2}").exit_code == 0


@pytest.mark.usefixtures("orders")
def test_messages_with_the_key_the_newest_first_and_by_count(rows: Rows) -> None:
    assert [row["body"] for row in rows("find", "orders", "customer-1")] == ["5", "3", "1"]
    assert [row["body"] for row in rows("find", "orders", "customer-0", "-n", "2")] == ["4", "2"]


@pytest.mark.usefixtures("orders")
def test_a_message_by_its_id(rows: Rows) -> None:
    (found,) = rows("find", "orders", "customer-1", "-n", "1")
    assert rows("find", "orders", found["id"]) == [found]


@pytest.mark.usefixtures("orders")
def test_for_people_with_the_time_and_raw(penstock: Penstock) -> None:
    [line] = penstock("find", "orders", "customer-1", "-n", "1").stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z orders:\d/\d id=[\w-]+ key=customer-1  5", line), line
    assert penstock("find", "orders", "customer-1", "--raw").stdout == "5\n3\n1\n"


@pytest.mark.usefixtures("orders")
def test_that_there_is_none_is_said_beside_the_output(penstock: Penstock) -> None:
    result = penstock("find", "orders", "\x1b[2J")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "(no message of orders has the key \\x1b[2J)\n"


def test_an_unknown_topic_and_an_empty_key_are_errors(penstock: Penstock) -> None:
    assert penstock("find", "nowhere", "k").exit_code == 3
    result = penstock("find", "nowhere", "")
    assert result.exit_code == 2
    assert "at least one character" in result.stderr


def test_a_time_that_ends_before_it_begins_is_refused(penstock: Penstock) -> None:
    told = penstock("find", "orders", "k", "--since", "2026-01-02", "--until", "2026-01-01")
    assert (told.exit_code, "2026-01-01 is before --since" in told.stderr) == (2, True)
