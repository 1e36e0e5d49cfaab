"""Reading ahead without threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.blocking import BlockingLink
from penstock.blocking.exchange import Exchange
from penstock.blocking.pulls import Pulls
from penstock.client.positions import Position, PullLimits
from penstock.errors import InvalidTopic, OffsetOutOfRange, PenstockError, QueueNotFound
from penstock.protocol.message import Message
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.request import Request
from penstock.world import RealClock
from tests.penstock.linked_cluster import LinkedBroker, LinkedCluster


@pytest.fixture
def broker(serve: Callable[..., Any]) -> LinkedBroker:
    made = LinkedCluster(topics=["t"]).brokers[0]
    for queue in range(2):
        made.put(*[Message("t", str(at).encode()) for at in range(10)], queue=queue)
    made.listen(serve)
    return made


def opened(broker: LinkedBroker, *offsets: int, **limits: Any) -> tuple[Pulls, list[Position], BlockingLink]:
    pulls = Pulls(Exchange(), PullLimits(**limits), RealClock(), random.Random(1))
    link = BlockingLink(broker.route.address)
    positions = [Position(MessageQueue("b", "t", queue)) for queue in range(len(offsets))]
    for position, offset in zip(positions, offsets, strict=True):
        position.begin(offset)
        pulls.add(position, link)
    return pulls, positions, link


def test_one_batch_per_queue_is_read_ahead(broker: LinkedBroker) -> None:
    pulls, _positions, link = opened(broker, 0, 5, batch_max=5)
    with link:
        got = [pulls.take(5) for _ in range(3)]
        assert sorted(batch.messages[0].offset for batch in got if batch) == [0, 5, 5]
        assert len([one for one in broker.asked if isinstance(one, Pull)]) <= 4


def test_nothing_of_before_a_seek_or_a_drop_is_handed_out(broker: LinkedBroker) -> None:
    pulls, (first, second), link = opened(broker, 0, 0, batch_max=5)
    with link:
        assert pulls.take(5) is not None
        first.begin(9)
        pulls.drop(second)
        batch = pulls.take(5)
        assert batch is not None
        assert [message.offset for message in batch.messages] == [9]
        assert pulls.take(0.02) is None


def test_errors_that_cannot_be_mended_are_raised(broker: LinkedBroker) -> None:
    pulls, _positions, link = opened(broker, 99)
    with link, pytest.raises(OffsetOutOfRange, match="ends at 10"):
        pulls.take(5)
    broker.refuse = lambda request: InvalidTopic("no") if isinstance(request, Pull) else None
    pulls, _positions, link = opened(broker, 0)
    with link, pytest.raises(InvalidTopic):
        pulls.take(5)


def test_a_queue_whose_topic_was_deleted_is_asked_for_again_unless_it_is_read_to_an_end(broker: LinkedBroker) -> None:
    errors: list[PenstockError] = []

    def gone_once(request: Request) -> PenstockError | None:
        if isinstance(request, Pull) and not errors:
            errors.append(QueueNotFound("deleted"))
            return errors[0]
        return None

    broker.refuse = gone_once
    pulls, _positions, link = opened(broker, 0)
    with link:
        batch = pulls.take(5)
        assert batch is not None
        assert batch.messages[0].offset == 0
    broker.refuse = lambda request: QueueNotFound("deleted") if isinstance(request, Pull) else None
    pulls, [position], link = opened(broker, 0)
    position.stop_at = 10
    with link, pytest.raises(QueueNotFound):
        pulls.take(5)
