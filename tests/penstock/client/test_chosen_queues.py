"""Which queues a reader reads."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.chosen_queues import ChosenQueues, later_start
from penstock.errors import InvalidRequest, QueueNotFound
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.routes import BrokerRoute

ROUTES = (BrokerRoute("a", "h:1", 2), BrokerRoute("b", "h:2", 3))
FIRST, OTHER = MessageQueue("a", "t", 0), MessageQueue("b", "t", 2)


@pytest.mark.parametrize(
    ("queues", "read"),
    [
        (None, ["a0", "a1", "b0", "b1", "b2"]),
        ([1], ["a1", "b1"]),
        ({5, 0}, ["a0", "a5", "b0", "b5"]),
        ([OTHER, FIRST, OTHER], ["a0", "b2"]),
        ([], []),
    ],
)
def test_a_program_names_all_queues_numbers_or_certain_ones(queues: Any, read: list[str]) -> None:
    chosen = ChosenQueues(queues, "t")
    found = [queue for route in ROUTES for queue in chosen.at(route, "t")]
    assert [f"{queue.broker}{queue.number}" for queue in found] == read
    assert all(queue in chosen for queue in found)
    assert (MessageQueue("c", "t", 1) in chosen) == (queues is None or queues == [1])
    chosen.check_found(ROUTES)


def test_a_queue_of_a_broker_without_the_topic_is_not_there() -> None:
    with pytest.raises(QueueNotFound, match=r"t:0@a is not there \(brokers with the topic: b\)"):
        ChosenQueues([FIRST], "t").check_found(ROUTES[1:])


@pytest.mark.parametrize("wrong", [3, "0", FIRST, [-1], [True], [0, FIRST], ["0"], [1.5], [FIRST._replace(topic="u")]])
def test_what_names_no_queues_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest):
        ChosenQueues(wrong, "t")


def test_a_queue_that_is_found_later_is_read_from_what_is_new() -> None:
    assert [later_start(start, 100_000) for start in ("earliest", "latest", 7)] == ["earliest", 40_000, 7]
