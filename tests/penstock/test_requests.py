"""The list of requests and replies: codes, answers, and that they can grow."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from penstock import requests as module
from penstock.requests import REPLIES, REQUESTS, Append, Pulled, QueryRoute, Reply, Request

RANGES = {
    range(1, 10),
    range(10, 30),
    range(30, 40),
    range(40, 60),
    range(60, 70),
    range(70, 90),
    range(90, 100),
    range(100, 130),
}


def test_every_request_that_is_defined_is_in_the_table_under_its_code() -> None:
    defined = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Request) and v is not Request}
    assert set(REQUESTS.values()) == defined
    assert all(REQUESTS[cls.code] is cls for cls in defined)
    assert all(any(code in one for one in RANGES) for code in REQUESTS)


@pytest.mark.parametrize("cls", REQUESTS.values())
def test_every_request_says_which_reply_answers_it(cls: type[Request]) -> None:
    assert issubclass(cls.reply, Reply)
    assert cls.reply in REPLIES


@pytest.mark.parametrize("cls", [*REQUESTS.values(), *REPLIES])
def test_fields_with_defaults_come_last_so_that_both_sides_can_grow(cls: type) -> None:
    optional = [field.default is not MISSING for field in fields(cls) if field.name != "body"]
    assert optional == sorted(optional)


@pytest.mark.parametrize("cls", [*REQUESTS.values(), *REPLIES])
def test_requests_and_replies_are_values(cls: type) -> None:
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not hasattr(cls, "__dict__") or "__slots__" in vars(cls)


def test_codes_never_change_once_given() -> None:
    """Older clients and stored captures depend on these."""
    known = {1: "Ping", 10: "RegisterBroker", 11: "BrokerHeartbeat", 12: "UnregisterBroker", 13: "QueryRoute"}
    known |= {14: "QueryTopics", 30: "CreateTopic", 31: "DescribeTopic", 32: "ListTopics", 40: "Append", 41: "Pull"}
    known |= {42: "QueryBounds", 43: "SeekTime", 44: "FindByKey", 60: "OpenFilters", 61: "CloseFilters"}
    known |= {62: "KeepFilters", 63: "FetchRetained", 70: "JoinGroup", 71: "WatchGroup", 72: "LeaveGroup"}
    known |= {73: "CommitOffsets", 74: "FetchOffsets", 75: "ListGroups", 76: "DescribeGroup", 90: "ReadFigures"}
    assert {code: REQUESTS[code].__name__ for code in known} == known


def test_equal_requests_are_equal() -> None:
    assert QueryRoute("a") == QueryRoute("a") != QueryRoute("b")
    assert Append(1, False, b"x") == Append(1, False, b"x")
    assert Pulled(0, 0, 0, 0, b"") != Pulled(1, 0, 0, 0, b"")
