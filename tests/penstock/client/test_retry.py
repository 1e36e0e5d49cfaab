"""Waits between attempts and for replies."""

from __future__ import annotations

import random
from typing import Any

import pytest

import penstock
from penstock import blocking
from penstock.client.reader import Reader
from penstock.client.retry import BackOff, patience_s, worth_another_try
from penstock.errors import Busy, InvalidRequest, InvalidTopic
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.servers import Ping


class Highest(random.Random):
    def random(self) -> float:
        return 1.0


def test_the_bound_doubles_up_to_the_cap() -> None:
    back_off = BackOff(first_s=0.1, cap_s=1.0)
    assert [back_off.wait_s(attempt, Highest()) for attempt in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_million_attempts_are_no_overflow() -> None:
    assert BackOff(cap_s=3).wait_s(1_000_000, Highest()) == 3


def test_waits_are_spread_over_the_whole_range() -> None:
    rng = random.Random(1)
    waits = [BackOff(1, 1).wait_s(1, rng) for _ in range(1000)]
    assert min(waits) < 0.05
    assert max(waits) > 0.95


def test_a_long_poll_is_given_its_wait_on_top() -> None:
    assert patience_s(Pull("a:0", 0, wait_s=30), None) == 40
    assert patience_s(Ping(), None) == 10
    assert patience_s(Pull("a:0", 0, wait_s=30), 5) == 5


def test_only_what_can_help_is_tried_again_and_only_in_time() -> None:
    assert worth_another_try(Busy(""), 1.0, 2.0)
    assert not worth_another_try(Busy(""), 2.0, 2.0)
    assert not worth_another_try(InvalidTopic(""), 1.0, 2.0)


@pytest.mark.parametrize("given", ["5", None, [5], b"5", float("nan")])
def test_what_is_no_number_of_seconds_is_refused_by_its_name(given: Any) -> None:
    def refused(name: str) -> Any:
        return pytest.raises(InvalidRequest, match=f"{name} is a number of seconds, not ")

    for client in (penstock.Producer, blocking.Producer):
        with refused("timeout_s"):
            client(timeout_s=given)
    for reader in (Reader, blocking.Reader):
        with refused("timeout_s"):
            reader("orders", timeout_s=given)
    for consumer in (penstock.Consumer, blocking.Consumer):
        with refused("timeout_s"):
            consumer("g", "orders", timeout_s=given)
        with refused("session_s"):
            consumer("g", "orders", session_s=given)
