"""What a program asks of its group, checked at once, and the request that it becomes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.client.terms import NO_TERMS, Terms, check_filter, terms_of
from penstock.errors import InvalidFilter, InvalidRequest
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.groups import JoinGroup

PLAIN = JoinGroup("g", "m", ("t",), 10.0)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"filter": "level >"}, InvalidFilter, "at the end"),
        ({"filter": 5}, InvalidRequest, "filter is a str, not 5"),
        ({"strategy": "random"}, InvalidRequest, "average, circle, hash, configured, room, nearest-room, not 'random'"),
        ({"room": 5}, InvalidRequest, "room is a str"),
        ({"force": "x"}, InvalidRequest, "force is True or False, not 'x'"),
        ({"queues": frozenset({"t:0"}), "strategy": "configured"}, InvalidRequest, "queues are MessageQueues"),
        ({"strategy": "configured"}, InvalidRequest, "go together"),
        ({"queues": frozenset({MessageQueue("b", "t", 0)})}, InvalidRequest, "go together"),
    ],
)
def test_wrong_terms_are_told_at_once(wrong: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Terms(**wrong)


def test_a_member_without_wishes_asks_as_ever() -> None:
    assert NO_TERMS.join("b", PLAIN, is_first=True) == PLAIN
    assert check_filter("") == ""


def test_a_broker_is_asked_for_its_own_queues_and_forced_once() -> None:
    queues = [MessageQueue("b", "t", 1), MessageQueue("b", "t", 0), MessageQueue("c", "t", 5)]
    terms = terms_of("x = 1", "configured", "north", queues, True)
    first = terms.join("b", PLAIN, is_first=True)
    assert first == JoinGroup("g", "m", ("t",), 10.0, "x = 1", "configured", "north", ("t:0", "t:1"), True)
    assert terms.join("c", PLAIN, is_first=False) == JoinGroup(
        "g", "m", ("t",), 10.0, "x = 1", "configured", "north", ("t:5",), False
    )


def test_a_member_is_told_of_another_filter(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Terms("x = 1").hear("g", "x = 1")
        assert not caplog.records
        Terms("x = 1").hear("g", "x = 2")
    assert "group g has the filter 'x = 2' now; this member was made with 'x = 1'" in caplog.text


def test_queues_that_are_no_queues_are_told() -> None:
    with pytest.raises(InvalidRequest, match="queues are MessageQueues, not 5"):
        terms_of("", "configured", "", 5, force=False)  # type: ignore[arg-type]
