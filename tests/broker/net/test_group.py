"""Nodes of a group as whole brokers: they join, elect, copy, fail over, and serve clients where they lead."""

from __future__ import annotations

import contextlib

import pytest
import trio

from penstock.client.wire_link import ask
from penstock.errors import NotLeader, PenstockError
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import OpenFilters
from penstock.protocol.requests.groups import Assignment, FetchOffsets, HoldOffsets, JoinGroup
from penstock.protocol.requests.messages import Appended, Pull, Pulled, QueryBounds
from penstock.protocol.requests.replicas import MoveLeader, Replicas, SetRole
from penstock.protocol.requests.request import Reply, Request, Result
from penstock.protocol.requests.servers import Ping, ServerInfo
from penstock.protocol.requests.sessions import KeepSessions, SessionCalls, WatchSessions
from penstock.protocol.requests.shares import TakeShared
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, TopicDetail
from penstock.service.frame_connection import Peer
from tests.broker.broker_rig import SMALL, append, bodies
from tests.simulation.nodes import GroupMember, SimGroup, in_group


def test_what_is_acknowledged_survives_the_leader_at_its_place() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        made = await group.until_done(CreateTopic("t", 1))
        assert isinstance(made, TopicDetail)
        assert made.level == "quorum", "the level of new topics in a group"
        places = {f"{number}": await group.send(f"{number}") for number in range(5)}
        first = await group.leader()
        first.die()
        began = trio.current_time()
        places["5"] = await group.send("5")
        assert trio.current_time() - began < 5.0
        second = await group.leader()
        assert second is not first
        first.begin(group.b.address, group.c.address)
        second.die(power=True)
        places["6"] = await group.send("6")
        second.begin(group.a.address)
        await group.level()
        logs = group.logs()
        assert len(logs) == 3
        assert logs[0] == logs[1] == logs[2]
        states = group.states()
        assert states[0] == states[1] == states[2]
        pulled = await group.until_done(Pull("t:0", 0))
        assert isinstance(pulled, Pulled)
        found = [body.decode() for body in bodies(pulled)]
        for body, place in places.items():
            assert found.count(body) == 1
            assert found.index(body) == int(place.partition(":")[2])

    in_group(1, scenario)


def test_a_node_that_does_not_lead_names_the_one_that_does() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.level()
        for node in (group.b, group.c):
            with pytest.raises(NotLeader) as refused:
                await group.ask(node, append(Message("t", b"x")))
            assert refused.value.leader == group.a.clients
            said = await group.describe(node)
            assert isinstance(said, Replicas)
            assert (said.role, said.leader) == ("observer", "a")

    in_group(2, scenario)


def test_a_leader_that_stops_hands_the_lead_over_before() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.level()
        leader = await group.leader()
        began = trio.current_time()
        leader.stop()
        assert await group.leader() is not leader
        assert trio.current_time() - began < 1.0, "without an election's time"

    in_group(3, scenario)


def test_what_is_parked_at_a_leader_is_answered_when_it_steps_down() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await group.level()
        leader = await group.leader()
        answers: list[PenstockError] = []

        async def wait_at_the_leader() -> None:
            link = group.links.link(leader.clients)
            with pytest.raises(NotLeader) as refused:
                await ask(link, WatchSessions("gateway", 60.0), SessionCalls, 90.0)
            answers.append(refused.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_at_the_leader)
            await trio.sleep(0.5)
            for other in group.nodes:
                if other is not leader:
                    group.simulation.network.cut(leader.host, other.host)
            with trio.fail_after(30.0):
                while not answers:  # noqa: ASYNC110 (nothing sets an event)
                    await trio.sleep(0.1)

    in_group(6, scenario)


def test_generations_of_groups_go_on_above_all_that_an_earlier_leader_gave() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        given: list[int] = []
        for _ in range(3):
            for member in ("m", "n"):
                joined = await group.until_done(JoinGroup("g", member, ("t",)))
                assert isinstance(joined, Assignment)
                given.append(joined.generation)
            leader = await group.leader()
            leader.die()
            await group.leader()
            leader.begin(*[one.address for one in group.nodes if one is not leader])
            await group.level()
        assert given == sorted(set(given))

    in_group(7, scenario)


def test_a_leader_that_hears_no_majority_says_nothing_of_what_is_true_now() -> None:
    """It may have been replaced. What it has committed it may show: that is old then, and never wrong."""

    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await group.send("kept")
        await group.until_done(OpenFilters("gateway", ("$share/s/t",)))
        await group.level()
        leader = await group.leader()
        about_now: list[Request] = [
            JoinGroup("g", "m", ("t",)),
            FetchOffsets("g", ("t:0",)),
            QueryBounds(("t:0",)),
            KeepSessions("gateway", 10.0),
            HoldOffsets("h", "holder", 10.0, ()),
            TakeShared("$share/s/t", "taker", 0, resumes=True),
        ]
        for request in about_now:
            assert not isinstance(await group.ask(leader, request), PenstockError)
        for other in group.nodes:
            if other is not leader:
                group.simulation.network.cut(leader.host, other.host)
        answers: list[PenstockError] = []

        async def ask_now(request: Request) -> None:
            with pytest.raises(NotLeader) as refused:
                await ask(group.links.link(leader.clients), request, Reply, 60.0)
            answers.append(refused.value)

        async with trio.open_nursery() as nursery:
            for request in about_now:
                nursery.start_soon(ask_now, request)
            pulled = await group.ask(leader, Pull("t:0", 0))
            assert isinstance(pulled, Pulled)
            assert bodies(pulled) == [b"kept"]
            assert not answers, "it has not stepped down yet"
        assert not any(one.unknown for one in answers), "they may be repeated at the next leader"

    in_group(9, scenario)


def test_a_new_leader_tells_of_no_queue_that_it_ends_before_what_was_acknowledged() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        for count in range(1, 4):
            await group.send("x")
            leader = await group.leader()
            leader.die()
            others = [one for one in group.nodes if one is not leader]
            told: list[TopicDetail] = []

            async def ask_all(others: list[GroupMember], told: list[TopicDetail]) -> None:
                for one in others:
                    with contextlib.suppress(PenstockError):
                        detail = await group.ask(one, DescribeTopic("t"))
                        assert isinstance(detail, TopicDetail)
                        told += [] if detail.is_copy else [detail]

            async with trio.open_nursery() as nursery:
                while not told:
                    nursery.start_soon(ask_all, others, told)
                    await trio.sleep(0.005)
            assert {one.bounds[0].end for one in told} == {count}
            leader.begin(*[one.address for one in others])
            await group.level()

    in_group(10, scenario)


def test_a_gateway_in_the_process_of_a_node_works_through_its_promotion() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.until_done(CreateTopic("t", 1))
        await group.level()
        first = await group.leader()
        sessions = {
            node.name: node.running.open_session(Peer(0, "in this process"))
            for node in group.nodes
            if node.running is not None
        }
        first.die()
        second = await group.leader()
        results: list[Result] = []
        with trio.fail_after(30.0):
            while not any([isinstance(one, Appended) for one in results]):
                sessions[second.name].submit(append(Message("t", b"x")), results.append)
                sessions[second.name].flush()
                await trio.sleep(0.1)

    in_group(8, scenario)


def test_the_lead_moves_to_the_voter_that_an_operator_names() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin()
        await group.level()
        wanted = next(one for one in group.nodes if one is not group.a)
        leader = await group.leader()
        await group.ask(leader, MoveLeader(wanted.name))
        while await group.leader() is not wanted:  # noqa: ASYNC110 (nothing sets an event)
            await trio.sleep(0.1)
        assert await group.send("here")

    in_group(4, scenario)


def test_copies_are_read_and_go_on_to_be_when_the_leader_is_gone() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        await group.until_done(CreateTopic("t", 1))
        await group.send("first")
        await group.level()
        results: list[Pulled] = []

        async def wait_for_the_next() -> None:
            results.append(await ask(group.links.link(group.b.clients), Pull("t:0", 1, wait_s=30.0), Pulled, 60.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_the_next)
            await trio.sleep(1.0)
            await group.send("second")
        assert bodies(results[0]) == [b"second"], "one that waited at an observer hears of it"
        await group.level()
        group.a.die()
        await trio.sleep(5.0)
        pulled = await group.ask(group.b, Pull("t:0", 0))
        assert isinstance(pulled, Pulled)
        assert bodies(pulled) == [b"first", b"second"]
        about = await group.ask(group.b, Ping())
        assert isinstance(about, ServerInfo)
        assert (about.role, about.name) == ("broker", "group")
        with pytest.raises(NotLeader):
            await group.ask(group.b, append(Message("t", b"?")))

    in_group(5, scenario)


def test_files_have_the_size_that_the_groups_first_node_says_whoever_leads() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.begin(voters="a")
        size = SMALL["segment_bytes"]
        group.b.stop()
        group.c.stop()
        await trio.sleep(1.0)
        group.b.begin(group.a.address, segment_bytes=4 * size)
        group.c.begin(group.a.address, segment_bytes=2 * size)
        for name in "bc":
            await group.until_done(SetRole(name, True, True))
        await group.until_done(CreateTopic("t", 1))
        for name in "bac":
            await group.until_done(MoveLeader(name))
            for number in range(30):
                await group.send(f"{name} {number} ".ljust(size // 20, "."))
        await group.level()
        logs = group.logs()
        assert logs[0] == logs[1] == logs[2]
        assert len(logs[0]) > 4
        sizes = [len(data) for data in logs[0].values()]
        assert max(sizes) <= size

    in_group(46, scenario)
