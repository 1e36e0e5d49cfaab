"""Flows run by callbacks, whatever order the answers come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Busy
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.servers import Ping
from remoting.flows import AtNames, Flow, Flows, Sleep


class Held:
    """A link that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[OnResult] = []
        self.flushed = 0

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.waiting.append(on_result)

    def flush(self) -> None:
        self.flushed += 1


def made() -> tuple[Flows, Held, Held, list[tuple[float, Callable[[], None]]], list[None]]:
    broker, names = Held(), Held()
    timers: list[tuple[float, Callable[[], None]]] = []
    wanted: list[None] = []
    flows = Flows(broker, names, lambda seconds, then: timers.append((seconds, then)), lambda: wanted.append(None))
    return flows, broker, names, timers, wanted


def test_a_flow_goes_on_with_each_answer_and_returns_at_its_end() -> None:
    flows, broker, names, timers, wanted = made()
    ended: list[Any] = []

    def flow() -> Flow:
        first = yield Ping()
        second = yield AtNames(Ping())
        yield Sleep(2.0)
        return [first, second]

    flows.run(flow(), ended.append)
    broker.waiting.pop()(Done())
    names.waiting.pop()(Done())
    ((seconds, resume),) = timers
    assert (seconds, ended, len(wanted)) == (2.0, [], 2)
    resume()
    assert ended == [[Done(), Done()]]


def test_an_error_is_raised_in_the_flow_and_ends_it_unless_it_is_caught() -> None:
    flows, broker, _names, _timers, _wanted = made()
    ended: list[Any] = []

    def catching() -> Flow:
        try:
            yield Ping()
        except Busy as error:
            return error.message
        return ""

    def plain() -> Flow:
        yield Ping()

    for flow in (catching(), plain()):
        flows.run(flow, ended.append)
        broker.waiting.pop()(Busy("not now"))
    assert ended[0] == "not now"
    assert isinstance(ended[1], Busy)


def test_a_flush_reaches_both_links() -> None:
    flows, broker, names, _timers, _wanted = made()
    flows.flush()
    assert (broker.flushed, names.flushed) == (1, 1)
