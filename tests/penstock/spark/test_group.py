from __future__ import annotations

import logging

import pytest

from penstock.clock import Clock
from penstock.errors import Fenced, InvalidConfig, PenstockError, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.groups import CommitOffsets
from penstock.protocol.requests.topics import CreateTopic, DescribeTopic
from penstock.spark.group import EVERY_S, GroupPosition
from penstock.spark.offsets import Extent, QueueKey
from tests.broker.broker_rig import Rig, append
from tests.broker.topics.test_changes import pass_time

A, B = QueueKey("t", "broker-a", 0), QueueKey("t", "broker-b", 3)
EXTENTS = {A: Extent("a:1", 0, 9), B: Extent("b:1", 0, 9)}


class Brokers(Clock):
    """Two brokers that hear of positions, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heard: list[tuple[str, dict[str, int]]] = []
        self.error: PenstockError | None = None
        self.position = GroupPosition("g", self.tell, self)

    def monotonic(self) -> float:
        return self.now

    def tell(self, address: str, request: CommitOffsets) -> None:
        if self.error is not None:
            raise self.error
        assert (request.group, request.member) == ("g", "")
        self.heard.append((address, {one.queue: one.offset for one in request.offsets}))


def test_each_broker_hears_of_its_queues_and_of_changes_only() -> None:
    brokers = Brokers()
    brokers.position.reached({A: 1, B: 2}, EXTENTS)
    brokers.now += EVERY_S
    brokers.position.reached({A: 1, B: 3, QueueKey("t", "broker-c", 0): 5}, EXTENTS)
    assert brokers.heard == [("a:1", {"t:0": 1}), ("b:1", {"t:3": 2}), ("b:1", {"t:3": 3})]


def test_it_is_told_once_a_second_or_when_all_is_read() -> None:
    brokers = Brokers()
    for at in (1, 2, 3):
        brokers.position.reached({A: at}, EXTENTS)
    assert brokers.heard == [("a:1", {"t:0": 1})]
    brokers.position.reached({A: 9}, EXTENTS)
    assert brokers.heard[1:] == [("a:1", {"t:0": 9})]


def test_what_fails_later_is_a_warning_and_told_again(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    brokers.position.reached({A: 1}, EXTENTS)
    brokers.error = Fenced("group g has members")
    with caplog.at_level(logging.WARNING):
        for at in (2, 3):
            brokers.now += EVERY_S
            brokers.position.reached({A: at}, EXTENTS)
    assert [one.message for one in caplog.records] == ["the position of group g is not reported: group g has members"]
    brokers.error, brokers.now = None, brokers.now + EVERY_S
    brokers.position.reached({A: 3}, EXTENTS)
    assert brokers.heard[-1] == ("a:1", {"t:0": 3})


def test_a_broker_that_is_away_ends_no_query_but_a_refusal_from_the_start_does() -> None:
    brokers = Brokers()
    brokers.error = Unavailable("away")
    brokers.position.reached({A: 1}, EXTENTS)
    brokers.error, brokers.now = Fenced("group g has members"), EVERY_S
    with pytest.raises(InvalidConfig, match="group 'g' takes no position of a query: group g has members"):
        brokers.position.reached({A: 1}, EXTENTS)


def test_retention_waits_for_what_a_query_has_not_read() -> None:
    """With a broker without a network, whose clock the test moves on."""
    rig = Rig(default_queues=1)
    rig.ask(CreateTopic("t", retention_s=600))
    rig.ask(append(*[Message("t", b"x")] * 3))
    position = GroupPosition("nightly", lambda address, request: rig.ask(request), rig.times)
    extents = {A: Extent("a:1", 0, 3)}

    def begin_after(seconds: float) -> int:
        for _ in range(4):
            pass_time(rig, seconds / 4)
        return int(rig.ask(DescribeTopic("t")).bounds[0].min)

    position.reached({A: 1}, extents)
    assert begin_after(2000.0) == 1
    position.reached({A: 3}, extents)
    assert begin_after(100.0) == 3
