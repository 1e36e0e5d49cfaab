"""Links that find the leader among the copies of a broker's log.

A request that a node has refused because another one leads goes to that one: once, and only where it was surely not
carried out. Where a node cannot be reached, or knows no leader, the next request goes to another copy: it answers what
a copy can answer, and says who leads. Requests keep their order on the way to one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from penstock.errors import InvalidConfig, NoQuorum, NotLeader, Unavailable
from penstock.protocol.link import Link, Links, OnResult
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import BrokerRoute

CopiesOf = Callable[[str], Sequence[str]]
"""Addresses of all nodes with a copy of the log of the one at an address, itself included; none if it has no copies."""


class KnownCopies:
    """The nodes that have copies of each log, as learned from routes."""

    def __init__(self) -> None:
        self._copies: dict[str, tuple[str, ...]] = {}

    def learn(self, routes: Iterable[BrokerRoute]) -> None:
        """Takes the copies that the routes of these brokers name."""
        for route in routes:
            if route.readers:
                copies = tuple(dict.fromkeys((route.address, *route.readers)))
                self._copies.update(dict.fromkeys(copies, copies))

    def of(self, address: str) -> tuple[str, ...]:
        """Nodes with a copy of the log of the one at this address, itself included; none where it has no copies."""
        return self._copies.get(address, ())


def leader_of(result: Result, address: str) -> str:
    """The address of the leader to which a request goes on that was refused at ``address``; empty if it does not."""
    if isinstance(result, NotLeader) and not result.unknown and result.leader != address:
        return result.leader
    return ""


def is_away(result: Result) -> bool:
    """Whether a result means that the next request should go to another copy."""
    return isinstance(result, Unavailable) and not isinstance(result, NoQuorum)


def next_copy(address: str, copies: Sequence[str]) -> str:
    """The copy after the one at an address, in turn; the address itself if there are no copies."""
    return copies[(copies.index(address) + 1) % len(copies)] if address in copies else copies[0] if copies else address


class FollowingLink:
    """The link to the node of a group that answers best.

    Args:
        address: the node to begin with.
        on_moved: told the address of a node that has said that another one leads.
    """

    def __init__(self, address: str, links: Links, copies_of: CopiesOf, on_moved: Callable[[str], None]) -> None:
        self._links = links
        self._copies_of = copies_of
        self._on_moved = on_moved
        self._at = address
        self._link = links.link(address)
        self._out = 0

    @property
    def waits_at(self) -> str:
        """The node whose answer is waited for, empty if none is."""
        return self._at if self._out else ""

    def to_copy(self, turn: int) -> Link | None:
        """The way to another node with a copy, one of all by ``turn``; None where none is known."""
        others = [one for one in self._copies_of(self._at) if one != self._at]
        return self._links.link(others[turn % len(others)]) if others else None

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._out += 1
        self._link.submit(request, partial(self._heard, self._at, request, on_result))

    def flush(self) -> None:
        self._link.flush()

    def _heard(self, address: str, request: Request | None, on_result: OnResult, result: Result) -> None:
        """``request``: the request, while it may still go on to the leader; else None."""
        self._out -= 1
        if is_away(result):
            leader = leader_of(result, address)
            if leader:
                self._on_moved(address)
            if leader and request is not None and self._turn(address, leader):
                self._out += 1
                self._links.link(leader).submit(request, partial(self._heard, leader, None, on_result))
                self._links.link(leader).flush()
                return
            self._turn(address, next_copy(address, self._copies_of(address)))
        on_result(result)

    def _turn(self, left: str, address: str) -> bool:
        """Sends the next requests to another node, unless they already go elsewhere than to ``left``. False if
        ``address`` is not one."""
        try:
            link = self._links.link(address)
        except InvalidConfig:
            return False
        if self._at == left != address:
            self._link.flush()
            self._at, self._link = address, link
        return True
