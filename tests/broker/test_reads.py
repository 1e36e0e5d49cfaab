"""What a copy answers while another node leads."""

from __future__ import annotations

import pytest

from broker.figures import Figures
from broker.kernel.outcomes import AfterQuorum, AfterRound, Now, Outcome, Parked
from broker.reads import BEHIND_S, FollowerReads
from penstock.errors import OffsetOutOfRange, PenstockError
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.protocol.requests.groups import CommitOffsets, FetchOffsets, GroupOffsets, JoinGroup, QueueOffset
from penstock.protocol.requests.messages import BoundsReply, FindByKey, Pull, Pulled, QueryBounds, SeekTime
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.sessions import OpenSession
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic, ListTopics, TopicDetail, TopicList
from tests.broker.broker_rig import append
from tests.simulation.replicas import Copy, World

LEADERS: list[Request] = [
    CreateTopic("new", 1),
    DescribeTopic("new", create=True),
    DescribeTopic("new"),
    Pull("new:0", 0),
    QueryBounds(("t:0", "new:0")),
    append(Message("t", b"x")),
    JoinGroup("g", "m", ("t",)),
    CommitOffsets("g", "m", 1, (QueueOffset("t:0", 1),)),
    OpenSession("gw", "c", True, 0, b""),
]


class Scene:
    """A group of three with a topic and some messages, as one that follows has them."""

    def __init__(self) -> None:
        self.world = World(5)
        self.world.drop = 0.0
        self.ask_leader(CreateTopic("t", 1))
        self.send(3)
        leader = self.world.elect()
        [self.copy] = [node for node in self.world.nodes if node is not leader][:1]
        self.reads = self.reads_of(self.copy)

    def reads_of(self, copy: Copy) -> FollowerReads:
        return FollowerReads(copy.settings, copy.state, copy.store, Figures(), 0.0)

    def ask_leader(self, request: Request) -> None:
        leader = self.world.elect()
        assert leader.rig
        answers = leader.rig.submit(request)
        self.world.level()
        assert not isinstance(answers[0], PenstockError), answers

    def send(self, count: int) -> None:
        messages = [
            Message("t", b"%d" % number, key="k", mqtt_topic=f"t/{number}", retain=True) for number in range(count)
        ]
        self.ask_leader(append(*messages))

    def outcome(self, request: Request) -> Outcome | None:
        return self.reads.handle(request, 0.0, 0)

    def result(self, request: Request) -> Result:
        outcome = self.outcome(request)
        assert isinstance(outcome, Now | AfterRound)
        return outcome.result


def test_a_copy_serves_all_reads_of_what_it_has() -> None:
    scene = Scene()
    pulled = scene.result(Pull("t:0", 1))
    assert isinstance(pulled, Pulled)
    assert (pulled.count, pulled.next, pulled.end) == (2, 3, 3)
    bounds = scene.result(QueryBounds(("t:0",)))
    assert isinstance(bounds, BoundsReply)
    assert bounds.bounds[0].end == 3
    topics = scene.result(ListTopics())
    assert isinstance(topics, TopicList)
    assert [one.topic for one in topics.topics] == ["t"]
    detail = scene.result(DescribeTopic("t", create=True))
    assert isinstance(detail, TopicDetail)
    assert (detail.bounds[0].end, detail.is_copy) == (3, True)
    found = scene.result(FindByKey("t", "k"))
    assert isinstance(found, Pulled)
    assert found.count == 3
    assert not isinstance(scene.result(SeekTime("t:0", 0)), PenstockError)
    assert scene.result(FetchOffsets("g", ("t:0",))) == GroupOffsets((QueueOffset("t:0", -1),))
    retained = scene.outcome(FetchRetained("t/#"))
    assert isinstance(retained, AfterQuorum)
    assert isinstance(retained.result, RetainedPage)
    assert retained.result.count == 3
    assert retained.point <= scene.copy.store.committed


@pytest.mark.parametrize("request_of_leader", LEADERS, ids=[type(one).__name__ for one in LEADERS])
def test_all_else_is_the_leaders_and_so_is_what_this_copy_does_not_know(request_of_leader: Request) -> None:
    assert Scene().outcome(request_of_leader) is None


def test_a_topic_without_messages_has_bounds_as_at_its_leader() -> None:
    scene = Scene()
    scene.ask_leader(CreateTopic("empty", 2))
    bounds = scene.result(QueryBounds(("empty:1",)))
    assert isinstance(bounds, BoundsReply)
    assert bounds.bounds[0].end == 0


def test_an_offset_that_the_leader_has_and_this_copy_has_not_yet_is_waited_for() -> None:
    scene = Scene()
    waits = scene.outcome(Pull("t:0", 5, wait_s=20.0))
    assert isinstance(waits, Parked)
    assert (waits.wakers, waits.deadline) == (("t:0",), 20.0)
    assert waits.retry(False) is None
    scene.send(1)
    assert waits.retry(False) is None
    scene.send(2)
    assert scene.reads.take_wakers() == ["t:0"]
    pulled = waits.retry(False)
    assert isinstance(pulled, Pulled)
    assert (pulled.count, pulled.next) == (1, 6)
    short = scene.outcome(Pull("t:0", 9))
    assert isinstance(short, Parked)
    assert short.deadline == BEHIND_S
    assert short.retry(True) == Pulled(0, 9, 0, 6, b"")


def test_a_pull_at_the_end_waits_for_the_next_message() -> None:
    scene = Scene()
    waits = scene.outcome(Pull("t:0", 3, wait_s=20.0))
    assert isinstance(waits, Parked)
    scene.send(1)
    pulled = waits.retry(False)
    assert isinstance(pulled, Pulled)
    assert pulled.count == 1


def test_an_offset_before_the_first_is_an_error_here_too() -> None:
    scene = Scene()
    result = scene.result(Pull("t:0", -1))
    assert isinstance(result, OffsetOutOfRange)
