"""The table of all requests and replies: complete, without doubles, and able to grow."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import MISSING, fields, is_dataclass

from penstock.protocol import requests as package
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import PLACED_BYTES, Append
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.shares import TAKEN_BYTES_MAX, TakeShared
from penstock.protocol.requests.table import REPLIES, REQUESTS

RANGES = {
    "servers": (range(1, 10), range(90, 100)),
    "routes": (range(10, 30),),
    "topics": (range(30, 40),),
    "messages": (range(40, 60),),
    "filters": (range(60, 70),),
    "groups": (range(70, 90),),
    "sessions": (range(100, 120),),
    "shares": (range(120, 125),),
    "pops": (range(125, 130),),
    "replicas": (range(130, 146),),
    "timers": (range(150, 160),),
    "retries": (range(160, 170),),
    "transactions": (range(170, 180),),
}


def defined(base: type) -> set[type]:
    """The classes of this kind in any module of the package."""
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    values = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {value for value in values if issubclass(value, base) and value is not base}


def test_every_request_and_reply_of_the_package_is_in_the_table() -> None:
    assert set(REQUESTS.values()) == {one for one in defined(Request) if one.for_wire is Request.for_wire}
    assert set(REPLIES) == defined(Reply) - {GivenPulled}
    assert len(REPLIES) == len(set(REPLIES))


def test_every_request_has_a_code_of_its_theme_and_a_reply() -> None:
    for code, cls in REQUESTS.items():
        theme = cls.__module__.rpartition(".")[2]
        assert cls.code == code
        assert any(code in codes for codes in RANGES[theme]), cls
        assert cls.reply in REPLIES, cls


def test_fields_with_defaults_come_last_so_that_both_sides_can_grow() -> None:
    for cls in (*REQUESTS.values(), *REPLIES):
        optional = [field.default is not MISSING for field in fields(cls) if field.name != "body"]
        assert optional == sorted(optional), cls


def test_requests_and_replies_are_values() -> None:
    for cls in (*REQUESTS.values(), *REPLIES):
        assert is_dataclass(cls), cls
        assert cls.__eq__ is not object.__eq__, cls
        assert cls.__hash__ is not None, cls
        assert "__slots__" in vars(cls), cls


def test_only_these_are_carried_out_again_where_a_server_has_no_room_for_their_reply() -> None:
    """They change nothing. ``FetchExchanges`` is none of them: it fences earlier epochs."""
    assert {one.__name__ for one in REQUESTS.values() if one.is_repeatable} == {
        "CountTopics",
        "DescribeGroup",
        "DescribeReplicas",
        "FetchLog",
        "FetchOffsets",
        "FetchRetained",
        "FindByKey",
        "FindEndedSessions",
        "ListFilters",
        "ListGroups",
        "ListSessionFilters",
        "ListSessions",
        "ListShares",
        "ListTimers",
        "ListHalves",
        "ListReads",
        "ListTopics",
        "Pull",
        "QueryAllowed",
        "QueryBounds",
        "QueryConfig",
        "QueryRoute",
        "QueryTopics",
        "ReadAt",
        "ReadFigures",
    }


def test_replies_that_may_be_large_say_so() -> None:
    assert Append(1000, True, b"").reply_bytes() == 1000 * PLACED_BYTES
    assert Append(1000, False, b"").reply_bytes() == 0
    assert TakeShared("s", "t", 1).reply_bytes() == TAKEN_BYTES_MAX
    assert TakeShared("s", "t", 0).reply_bytes() == 0
