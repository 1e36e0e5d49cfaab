"""Flows run by callbacks, whatever order the answers come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Busy, NotAuthorized, StorageFull
from penstock.protocol.link import OnResult
from penstock.protocol.requests.messages import Append, Appended, Placed, Refused
from penstock.protocol.requests.request import Done, Request
from penstock.protocol.requests.servers import Ping
from remoting.flows import APPEND_BYTES_MAX, AtNames, Flow, Flows, Own, Sleep


class Held:
    """A link that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.waiting: list[OnResult] = []
        self.flushed = 0

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.asked.append(request)
        self.waiting.append(on_result)

    def flush(self) -> None:
        self.flushed += 1


class AtOnce:
    """A link that answers within the call."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(Done())

    def flush(self) -> None: ...


def made() -> tuple[Flows, Held, Held, list[tuple[float, Callable[[], None]]], list[None]]:
    broker, names = Held(), Held()
    timers: list[tuple[float, Callable[[], None]]] = []
    wanted: list[None] = []
    flows = Flows(
        broker,
        names,
        lambda seconds, then: timers.append((seconds, then)),
        lambda: wanted.append(None),
        lambda *_: None,
    )
    return flows, broker, names, timers, wanted


def test_what_flows_append_in_one_round_is_one_request_and_each_gets_its_part() -> None:
    flows, broker, *_ = made()
    ended: list[Any] = []

    def flow(count: int, body: bytes) -> Flow:
        return (yield Append(count, True, body))

    for count, body in ((1, b"a"), (2, b"bc"), (1, b"d")):
        flows.run(flow(count, body), ended.append)
    assert broker.asked == []
    flows.flush()
    assert broker.asked == [Append(4, True, b"abcd")]
    placed = tuple([Placed(0, offset, offset) for offset in range(4)])
    broker.waiting.pop()(Appended("disk", placed, (Refused(2, 7, "no"),)))
    assert ended == [
        Appended("disk", placed[:1], ()),
        Appended("disk", placed[1:3], (Refused(1, 7, "no"),)),
        Appended("disk", placed[3:], ()),
    ]


def test_what_is_asked_behind_an_append_is_carried_out_behind_it() -> None:
    flows, broker, *_ = made()

    def flow(request: Request) -> Flow:
        yield request

    flows.run(flow(Append(1, True, b"a")), lambda _: None)
    flows.run(flow(Ping()), lambda _: None)
    assert broker.asked == [Append(1, True, b"a"), Ping()]


def test_all_flows_whose_appends_were_one_request_get_its_error_and_more_than_a_megabyte_is_another() -> None:
    flows, broker, *_ = made()
    ended: list[Any] = []

    def flow(body: bytes) -> Flow:
        return (yield Append(1, True, body))

    for _ in range(3):
        flows.run(flow(bytes(APPEND_BYTES_MAX // 2)), ended.append)
    flows.flush()
    assert [one.count for one in broker.asked if isinstance(one, Append)] == [2, 1]
    broker.waiting[0](StorageFull("full"))
    assert [type(one) for one in ended] == [StorageFull, StorageFull]


def test_a_flow_of_many_requests_that_are_answered_at_once_does_not_nest() -> None:
    flows = Flows(AtOnce(), Held(), lambda seconds, then: None, lambda: None, lambda *_: None)
    ended: list[Any] = []

    def flow() -> Flow:
        for _ in range(10_000):
            yield Ping()
        return "over"

    flows.run(flow(), ended.append)
    assert ended == ["over"]


def test_a_request_that_is_not_allowed_is_not_asked_and_the_flow_hears_of_it() -> None:
    flows, broker, *_ = made()
    ended: list[Any] = []

    def refuse(request: Request) -> None:
        raise NotAuthorized(f"not {type(request).__name__}")

    def flow() -> Flow:
        yield Own(Ping())
        try:
            yield Ping()
        except NotAuthorized as error:
            return error.message

    flows.run(flow(), ended.append, refuse)
    broker.waiting.pop()(Done())
    assert (ended, broker.asked) == (["not Ping"], [Ping()])


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
