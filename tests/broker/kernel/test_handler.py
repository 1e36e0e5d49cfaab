"""Handlers of requests: found by their mark, one per kind, called as they are."""

from __future__ import annotations

import pytest

from broker.kernel.handler import handlers_of, handles
from broker.kernel.outcomes import Now, Outcome
from penstock.errors import TopicNotFound
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.servers import Ping, ReadFigures


class Greeting:
    """A toy theme."""

    def __init__(self) -> None:
        self.greeted: list[int] = []

    @handles(Ping)
    def greet(self, request: Ping, now: float, now_ms: int) -> Outcome:
        self.greeted.append(now_ms)
        return Now(Done())

    def not_a_handler(self, request: Ping) -> None:
        raise AssertionError


class Figures:
    """Another one."""

    @handles(ReadFigures)
    def read(self, request: ReadFigures, now: float, now_ms: int) -> Outcome:
        raise TopicNotFound("t")


def test_each_request_finds_the_method_that_is_marked_for_it() -> None:
    greeting = Greeting()
    table = handlers_of((greeting, Figures()))
    assert set(table) == {Ping, ReadFigures}
    outcome = table[Ping](Ping(), 1.0, 2000)
    assert isinstance(outcome, Now)
    assert (outcome.result, greeting.greeted) == (Done(), [2000])


def test_a_request_with_two_handlers_is_refused_when_the_table_is_made() -> None:
    with pytest.raises(ValueError, match="two handlers of Ping"):
        handlers_of((Greeting(), Greeting()))


def test_a_method_handles_one_kind_of_request() -> None:
    with pytest.raises(ValueError, match="handles Ping, so not ReadFigures too"):
        handles(ReadFigures)(Greeting.greet)
