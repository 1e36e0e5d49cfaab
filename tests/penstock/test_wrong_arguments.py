"""Wrong types and values of what programs pass to the clients: each has an error of its own, at once, before any server
is asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import blocking
from penstock.errors import InvalidConfig, InvalidFilter, InvalidRequest, InvalidTopic

NAN, HUGE = float("nan"), 2**70
NO_FLAG = (None, 1, "yes", [])
NO_COUNT = (None, 0, -1, 1.5, True, "5", HUGE)
NO_SECONDS = (None, -1, "5", NAN, True, [])
NO_NAME = (None, 5, b"x", "", ["x"])
NO_LIST = (5, 1.5, True, object())
WRONG: dict[str, tuple[Any, ...]] = {
    "servers": (None, 5, True, b"h:1", [], [5], "", "h", ["h:1", None], {}, "tcp://h:1"),
    "address": (None, 5, b"h:1", "", "h", "h:x", ["h:1"]),
    "timeout_s": NO_SECONDS,
    "session_s": NO_SECONDS,
    "check_s": NO_SECONDS,
    "invisible_s": (*NO_SECONDS, 0, 43_201, float("inf")),
    "pending_max": NO_COUNT,
    "batch_max": NO_COUNT,
    "prefetch_bytes": NO_COUNT,
    "attempts_max": NO_COUNT,
    "idempotent": NO_FLAG,
    "failover": NO_FLAG,
    "until_end": NO_FLAG,
    "allow_incomplete": NO_FLAG,
    "force": NO_FLAG,
    "ordered": NO_FLAG,
    "broadcast": (*NO_FLAG, True),  # without a client's name
    "group": (None, 5, b"x", ["x"], "a@b", "%RETRY%a"),
    "topic": NO_NAME,
    "topics": (None, 5, [], [5], "", b"x"),
    "key": (None, 5, "", b"", []),
    "client": (None, 5, "x", ["x"]),
    "check": (5, "x", print),  # without a group
    "compression": (None, 5, "gzip", ["zstd"]),
    "topic_map": ("rules", 5, [], False),
    "start": (None, 5, "first", -1, True, 1.5),
    "since": (None, "x", -1, 1.5, True),
    "until": ("x", -1, 1.5, True),
    "tags": (*NO_LIST, "*", [5], None),
    "filter": (None, 5, b"a = 1", "a =", ["a = 1"]),
    "strategy": (None, "random", 5),
    "room": (None, 5, b"x"),
    "queues": (*NO_LIST, "0", ["0"], [-1]),
    "retry_delays_s": (*NO_LIST, "5", [None], [-1], ["1"], [41 * 86_400.0], False),
    "on_assigned": (5, "x"),
    "on_revoked": (5, "x"),
    "on_lost": (5, "x"),
    "after_s": ("5", -1, NAN, True, 41 * 86_400.0),
    "reason": (None, 5, b"x"),
    "user": (None, 5, b"x", "without a password"),
    "password": (None, 5, b"x", "without a user"),
    "token": (None, 5, b"x"),
    "tls": (5, 1.5, [], "/no/such/file"),
}
NOT_CHECKED = {"links", "clock", "rng", "credentials", "leader_at", "copies_of"}
"""What only programs that embed the servers pass, and other modules of the clients."""
ENTRANCES: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (penstock.Producer, {}),
    (penstock.Consumer, {"group": "g", "topics": "t"}),
    (penstock.PopConsumer, {"group": "g", "topics": "t"}),
    (penstock.Reader, {"topic": "t"}),
    (penstock.Admin, {}),
    (penstock.find, {"topic": "t", "key": "k"}),
    (penstock.Retry, {}),
    (blocking.Producer, {}),
    (blocking.Consumer, {"group": "g", "topics": "t"}),
    (blocking.PopConsumer, {"group": "g", "topics": "t"}),
    (blocking.Reader, {"topic": "t"}),
    (blocking.Admin, {}),
    (blocking.Routes, {"servers": "h:1"}),
    (blocking.BlockingLink, {"address": "h:1"}),
]


def name_of(entrance: Any) -> str:
    return f"{entrance.__module__}.{entrance.__name__}" if callable(entrance) else ""


@pytest.mark.interpreted
@pytest.mark.parametrize(("entrance", "needed"), ENTRANCES, ids=name_of)
def test_each_wrong_argument_of_a_client_is_refused_by_its_own_error(
    entrance: Callable[..., Any], needed: dict[str, Any]
) -> None:
    entrance(**needed)
    accepted: list[tuple[str, Any]] = []
    for name in inspect.signature(entrance).parameters.keys() - NOT_CHECKED:
        for wrong in WRONG[name]:
            try:
                entrance(**needed | {name: wrong})
                accepted.append((name, wrong))
            except (InvalidRequest, InvalidConfig, InvalidFilter, InvalidTopic):
                pass
    assert accepted == []


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, method) for kind in ("Consumer", "PopConsumer") for method in ("handle", "handle_batches")],
)
def test_a_handler_of_the_wrong_kind_is_refused_before_it_has_a_message(kind: str, method: str) -> None:
    async def work(message: Any) -> None: ...

    handle = getattr(getattr(blocking, kind)("g", "t"), method)
    for wrong in (None, 5, "work"):
        with pytest.raises(InvalidRequest, match="a handler is a function"):
            handle(wrong)
    with pytest.raises(InvalidRequest, match="a blocking handler is a plain function"):
        handle(work)


@pytest.mark.parametrize("name", ["Producer", "Consumer", "PopConsumer", "Reader", "Admin"])
def test_the_wrong_kind_of_block_is_refused(name: str) -> None:
    needed = dict(ENTRANCES)[getattr(penstock, name)]
    with pytest.raises(InvalidRequest, match="is opened by `async with`"):
        getattr(penstock, name)(**needed).__enter__()
    with pytest.raises(InvalidRequest, match="is opened by `with`"):
        getattr(blocking, name)(**needed).__aenter__().send(None)
