"""Requests find the leader of a group, and reads any copy."""

from __future__ import annotations

import anyio

from penstock.client.discovery import FOLLOW_S, Discovery
from penstock.client.following import FollowingLink, KnownCopies
from penstock.errors import InvalidConfig, NoQuorum, NotLeader, PenstockError, Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Done, Request, Result
from penstock.protocol.requests.routes import BrokerRoute, Route
from penstock.protocol.requests.topics import DeleteTopic

A, B, C = "a:1", "b:1", "c:1"
WRITE = DeleteTopic("orders")


class Node:
    """One of a group: carries all out if it leads, and reads alone if not."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.says: PenstockError | None = None
        self.asked: list[Request] = []
        self._waiting: list[tuple[Request, OnResult]] = []

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._waiting.append((request, on_result))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for request, on_result in waiting:
            self.asked.append(request)
            on_result(self._answer(request))

    def _answer(self, request: Request) -> Result:
        if self.says is not None and not (isinstance(self.says, NotLeader) and isinstance(request, Pull)):
            return self.says
        return Done()


class Group:
    """Three nodes, of which A leads."""

    def __init__(self) -> None:
        self.nodes = {address: Node(self) for address in (A, B, C)}
        self.lead(A)
        self.moved: list[str] = []
        self.copies = KnownCopies()
        self.copies.learn([BrokerRoute("b", A, 4, readers=(B, C))])
        self.link_at_a = FollowingLink(A, self, self.copies.of, self.moved.append)

    def lead(self, leader: str) -> None:
        for address, node in self.nodes.items():
            node.says = None if address == leader else NotLeader("it follows", hint=leader)

    def link(self, address: str) -> Link:
        if address not in self.nodes:
            raise InvalidConfig(f"{address} is no address")
        return self.nodes[address]

    def give_up(self, address: str) -> None:
        raise AssertionError

    def ask(self, request: Request = WRITE) -> Result:
        results: list[Result] = []
        self.link_at_a.submit(request, results.append)
        self.link_at_a.flush()
        [result] = results
        return result

    def counts(self) -> list[int]:
        return [len(node.asked) for node in self.nodes.values()]


def test_a_refused_request_goes_to_the_leader_and_so_do_those_behind_it() -> None:
    group = Group()
    assert group.ask() == Done()
    group.lead(B)
    assert group.ask() == Done()
    assert group.moved == [A]
    assert group.ask() == Done()
    assert group.counts() == [2, 2, 0]


def test_it_goes_on_once_and_where_the_leader_has_moved_meanwhile_the_next_one_finds_it() -> None:
    group = Group()
    group.lead(C)
    group.nodes[A].says = NotLeader("it follows", hint=B)
    assert isinstance(group.ask(), NotLeader)
    assert group.counts() == [1, 1, 0]
    assert group.ask() == Done()


def test_what_may_be_carried_out_goes_nowhere_else() -> None:
    group = Group()
    group.nodes[A].says = NotLeader("it has lost the lead", hint=B).with_fate(True)
    result = group.ask()
    assert isinstance(result, NotLeader)
    assert result.unknown
    assert group.counts() == [1, 0, 0]


def test_where_a_node_is_gone_the_next_request_goes_to_another_copy_which_knows_the_leader() -> None:
    group = Group()
    group.lead(C)
    group.nodes[A].says = Unavailable("gone").with_fate(True)
    assert isinstance(group.ask(), Unavailable)
    assert group.ask() == Done()
    assert group.counts() == [1, 1, 1]


def test_reads_go_on_at_a_copy_while_nobody_leads() -> None:
    group = Group()
    group.lead("")
    group.nodes[A].says = Unavailable("gone")
    assert isinstance(group.ask(Pull("orders:0", 0)), Unavailable)
    assert group.ask(Pull("orders:0", 0)) == Done()
    assert isinstance(group.ask(), NotLeader)
    group.nodes[A].says = Unavailable("gone")
    assert group.ask(Pull("orders:0", 0)) == Done()


def test_a_leader_that_has_lost_its_quorum_is_asked_again() -> None:
    group = Group()
    group.nodes[A].says = NoQuorum("1 of 3 nodes")
    assert isinstance(group.ask(), NoQuorum)
    group.nodes[A].says = None
    assert group.ask() == Done()
    assert group.counts() == [2, 0, 0]


def test_a_hint_that_is_no_address_and_a_broker_without_copies_change_nothing() -> None:
    group = Group()
    alone = FollowingLink(C, group, KnownCopies().of, group.moved.append)
    results: list[Result] = []
    for says in (Unavailable("gone"), NotLeader("nobody leads"), NotLeader("who?", hint="somebody")):
        group.nodes[C].says = says
        alone.submit(WRITE, results.append)
        alone.flush()
    assert [type(result) for result in results] == [Unavailable, NotLeader, NotLeader]
    assert group.counts() == [0, 0, 3]


class Town(Group):
    """The group, and a name server that knows it; nobody answers at A."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = (BrokerRoute("b", A, 4, epoch=3, readers=(B, C)),)
        self.waiting: list[OnResult] = []
        self.given_up = anyio.Event()

    def link(self, address: str) -> Link:
        return Told(self) if address == "ns:1" else Silent(self) if address == A else super().link(address)

    def give_up(self, address: str) -> None:
        assert address == A
        for on_result in self.waiting:
            on_result(Unavailable("given up").with_fate(True))
        self.waiting.clear()
        self.given_up.set()


class Told:
    """A name server."""

    def __init__(self, town: Town) -> None:
        self._town = town

    def submit(self, request: Request, on_result: OnResult) -> None:
        on_result(Route(self._town.routes))

    def flush(self) -> None:
        """Nothing was held back."""


class Silent(Told):
    """A node that stands still."""

    def submit(self, request: Request, on_result: OnResult) -> None:
        self._town.waiting.append(on_result)


async def test_a_node_that_stands_still_is_given_up_when_its_group_goes_on_without_it() -> None:
    town = Town()
    discovery = Discovery("ns:1", town)
    await discovery.all_brokers()
    results: list[Result] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.keep_following)
        discovery.link(A).submit(WRITE, results.append)
        await anyio.sleep(5 * FOLLOW_S)
        assert not results, "as far as anybody knows it leads"
        town.routes = (BrokerRoute("b", B, 4, epoch=4, readers=(C,)),)
        town.lead(B)
        await town.given_up.wait()
        discovery.link(A).submit(WRITE, results.append)
        discovery.link(A).flush()
        tasks.cancel_scope.cancel()
    assert isinstance(results[0], Unavailable)
    assert results[1] == Done()


async def test_a_read_goes_to_the_first_copy_that_is_there() -> None:
    group = Group()
    group.lead("")
    for gone in (A, B):
        group.nodes[gone].says = Unavailable("gone")

    class Links(Town):
        def link(self, address: str) -> Link:
            return Told(self) if address == "ns:1" else group.link(address)

    discovery = Discovery("ns:1", Links())
    await discovery.all_brokers()
    assert await discovery.read(A, Pull("orders:0", 0), Done) == Done()
    assert group.counts() == [1, 1, 1]
