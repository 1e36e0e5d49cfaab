"""What administrators ask of messages, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

import pytest

from penstock.client.administration import Ask
from penstock.client.message_tasks import message, trace
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.requests.messages import FindByKey, Pulled, ReadAt
from penstock.protocol.requests.routes import BrokerRoute

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b:c", "host:2", 0)


@pytest.mark.parametrize("id", ["", "a", "a:", ":7", "a:-7", "a:seven", "a:7 "])
def test_what_is_no_offset_id_is_refused_before_anybody_is_asked(id: str) -> None:
    with pytest.raises(InvalidRequest, match="offset id"):
        next(message(id))


def test_the_broker_of_an_offset_id_is_asked() -> None:
    task = message("b:c:7")
    next(task)
    assert task.send((A, B)) == Ask("host:2", ReadAt(7), Pulled)
    task = message("x:7")
    next(task)
    with pytest.raises(NoRoute, match="no broker 'x'"):
        task.send((A, B))


def test_every_page_of_a_trace_is_asked_for_and_brokers_without_one_are_passed_over() -> None:
    task = trace("id")
    next(task)
    assert task.send((A, B)) == Ask("host:1", FindByKey("%TRACE%", "id"), Pulled)
    assert task.send(Pulled(0, 70, 0, 0, b"")) == Ask("host:1", FindByKey("%TRACE%", "id", before=70), Pulled)
    assert task.send(Pulled(0, 0, 0, 0, b"")) == Ask("host:2", FindByKey("%TRACE%", "id"), Pulled)
    with pytest.raises(StopIteration) as ended:
        task.throw(TopicNotFound("nothing was traced"))
    assert ended.value.value == []
