"""What administrators ask of topics, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.administration import ALL_BROKERS, Ask
from penstock.client.topic_tasks import (
    allow_broker,
    change_topic,
    create_topic,
    delete_topic,
    purge_topic,
    topic,
    topic_counts,
)
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import (
    AllowBroker,
    Bounds,
    BrokerAllows,
    ChangeTopic,
    CountTopics,
    DeleteTopic,
    QueryAllowed,
    TopicCount,
    TopicCounts,
    TopicDetail,
)

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)


def test_a_topic_is_deleted_wherever_it_is() -> None:
    task = delete_topic("température")
    next(task)
    wanted = task.send((A, B))
    assert wanted == Ask("host:1", DeleteTopic("temp%C3%A9rature"), TopicDetail)
    wanted = task.throw(TopicNotFound("not here"))
    assert wanted == Ask("host:2", DeleteTopic("temp%C3%A9rature"), TopicDetail)
    with pytest.raises(StopIteration) as ended:
        task.send(TopicDetail("t", 2, "disk", (Bounds("t:0", 3, 5), Bounds("t:1", 0, 4))))
    assert ended.value.value == {"b": 6}
    task = delete_topic("t")
    next(task)
    task.send((A,))
    with pytest.raises(TopicNotFound, match="there is no topic t"):
        task.throw(TopicNotFound("not here"))


def test_a_change_may_be_for_one_broker() -> None:
    task = change_topic("t", retention_s=0, broker="b")
    assert next(task) is ALL_BROKERS
    assert task.send((A, B)) is ALL_BROKERS
    assert task.send((A, B)) == Ask("host:2", ChangeTopic("t", retention_s=0), TopicDetail)
    with pytest.raises(StopIteration) as ended:
        task.send(TopicDetail("t", 3, "disk", (), draining=1))
    assert [(one.broker, one.queues, one.draining) for one in ended.value.value] == [("b", 2, 1)]


def test_what_is_not_said_of_a_broker_stays() -> None:
    task = allow_broker("b", write=False)
    next(task)
    assert task.send((A, B)) == Ask("host:2", QueryAllowed(), BrokerAllows)
    assert task.send(BrokerAllows(False, True)) == Ask("host:2", AllowBroker(False, False), Done)
    task = allow_broker("c", write=False)
    next(task)
    with pytest.raises(NoRoute, match="no broker 'c'; there are a, b"):
        task.send((A, B))
    with pytest.raises(InvalidRequest, match="give read, write or both"):
        next(allow_broker("b"))


@pytest.mark.parametrize("name", [None, 5, [], b"t"])
def test_a_topic_is_named_by_a_text(name: Any) -> None:
    tasks: list[Callable[[Any], Any]] = [topic, create_topic, change_topic, purge_topic, delete_topic]
    for task in tasks:
        with pytest.raises(InvalidRequest, match="the name of a topic is a str, not"):
            next(task(name))


@pytest.mark.parametrize(
    "given", [{"queues": "4"}, {"retention_s": 1.5}, {"trace_every": []}, {"level": 5}, {"access": 1}]
)
def test_an_argument_of_a_wrong_type_is_named(given: dict[str, Any]) -> None:
    for task in (create_topic("t", **given), change_topic("t", **given)):
        with pytest.raises(InvalidRequest, match=next(iter(given))):
            next(task)


def test_topics_are_counted_a_page_at_a_time_over_all_brokers() -> None:
    task = topic_counts()
    next(task)
    assert task.send((A, B)) == Ask("host:1", CountTopics(), TopicCounts)
    assert task.send(TopicCounts((TopicCount("t", 9, 4),), "t")) == Ask("host:1", CountTopics("t"), TopicCounts)
    task.send(TopicCounts((TopicCount("u", 1, 1),), ""))
    with pytest.raises(StopIteration) as ended:
        task.send(TopicCounts((TopicCount("t", 2, 2),), ""))
    assert ended.value.value == [TopicCount("t", 11, 6), TopicCount("u", 1, 1)]
