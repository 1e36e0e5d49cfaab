"""Messages by key: the pages of several brokers become one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import find
from penstock.errors import BrokerAway, InvalidRequest, NoRoute, PenstockError
from penstock.protocol.link import OnResult
from penstock.protocol.message import ENTRY, FRAME_HEAD, FRAME_HEAD_BYTES, STORED_AT, encode_record
from penstock.protocol.requests.messages import FindByKey, Pulled
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.service.frame_server import Peer

Serve = Callable[..., Any]


class Answering:
    """A server that answers with what a function says."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.asked: list[Any] = []

    def __call__(self, peer: Peer) -> Answering:
        return self

    def submit(self, request: Request, on_result: OnResult) -> None:
        self.asked.append(request)
        on_result(self._answer(request))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def page(*stored_ms: int, following: int) -> Pulled:
    entries, frames = b"", b""
    for one in stored_ms:
        record = bytearray(encode_record(b"orders", b"%d" % one, b"KEYS\x01k\x02"))
        record[STORED_AT : STORED_AT + 8] = one.to_bytes(8, "big")
        frames += FRAME_HEAD.pack(0, 0, FRAME_HEAD_BYTES + len(record), 0, 0) + record
        entries += ENTRY.pack(one, one, FRAME_HEAD_BYTES + len(record), 0)
    return Pulled(len(stored_ms), following, 0, 0, entries + frames)


def paged(pages: dict[int, Pulled]) -> Callable[[FindByKey], Pulled]:
    """A broker's pages by where they begin."""
    return lambda request: pages[request.before]


def names(serve: Serve, *brokers: Answering) -> str:
    addresses = [serve(broker).address for broker in brokers]
    routes = tuple(BrokerRoute(f"b{at}", address, 1) for at, address in enumerate(addresses))

    def answer(request: QueryRoute) -> Route | PenstockError:
        return Route(routes if request.topic == "orders" else ())

    address: str = serve(Answering(answer)).address
    return address


FIRST = FindByKey("", "").before


def test_the_newest_of_all_brokers_come_first_over_all_pages(serve: Serve) -> None:
    one = Answering(paged({FIRST: page(90, 70, following=50), 50: page(following=20), 20: page(10, following=0)}))
    two = Answering(paged({FIRST: page(80, following=7), 7: page(60, following=0)}))
    servers = names(serve, one, two)
    found = list(find("orders", "k", servers=servers, since=5, until=95))
    assert [message.stored_ms for message in found] == [90, 80, 70, 60, 10]
    assert [message.body for message in found] == [b"90", b"80", b"70", b"60", b"10"]
    assert one.asked[0] == FindByKey("orders", "k", 5, 95)
    assert [request.before for request in one.asked] == [FIRST, 50, 20]


def test_no_page_is_asked_for_that_nobody_wants(serve: Serve) -> None:
    one = Answering(paged({FIRST: page(90, 70, following=50)}))
    found = find("orders", "k", servers=names(serve, one))
    assert [next(found).stored_ms, next(found).stored_ms] == [90, 70]
    found.close()  # type: ignore[attr-defined]
    assert len(one.asked) == 1


def test_an_empty_key_is_refused_at_once_and_an_unknown_topic_when_it_is_asked_for(serve: Serve) -> None:
    with pytest.raises(InvalidRequest, match="at least one character"):
        find("orders", "", servers="127.0.0.1:1")
    found = find("nowhere", "k", servers=names(serve))
    with pytest.raises(NoRoute, match="nowhere"):
        next(found)


def test_a_broker_that_is_away_is_an_error_that_names_it_or_left_out_on_request(serve: Serve) -> None:
    there = Answering(paged({FIRST: page(90, following=0)}))
    route = Route((BrokerRoute("a", serve(there).address, 1),), ("b",))
    servers = serve(Answering(lambda request: route)).address
    with pytest.raises(BrokerAway, match="broker b is away, and may have some of topic 'orders'"):
        next(find("orders", "k", servers=servers))
    assert [one.stored_ms for one in find("orders", "k", servers=servers, allow_incomplete=True)] == [90]
