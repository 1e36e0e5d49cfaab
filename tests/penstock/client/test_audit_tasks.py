"""What administrators ask of the audit log, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

import pytest

from penstock.client.administration import Ask
from penstock.client.audit_tasks import PAGE, audit
from penstock.errors import InvalidRequest, QueueNotFound
from penstock.protocol.requests.messages import BoundsReply, Pull, Pulled, QueryBounds
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import Bounds

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)
BOUNDS = QueryBounds(("%AUDIT%:0",))


def test_the_latest_page_is_asked_for_and_brokers_that_kept_nothing_are_passed_over() -> None:
    task = audit()
    next(task)
    assert task.send((A, B)) == Ask("host:1", BOUNDS, BoundsReply)
    asked = task.send(BoundsReply((Bounds("%AUDIT%:0", 100, 2_000),)))
    assert asked == Ask("host:1", Pull("%AUDIT%:0", 2_000 - PAGE, 1 << 20, PAGE), Pulled)
    assert task.send(Pulled(0, 2_000, 100, 2_000, b"")) == Ask("host:2", BOUNDS, BoundsReply)
    with pytest.raises(StopIteration) as ended:
        task.throw(QueueNotFound("there is no such queue"))
    assert ended.value.value == []


@pytest.mark.parametrize("wrong", [{"count": "1"}, {"user": None}, {"refused": 1}, {"since": "soon"}])
def test_what_is_no_question_is_refused_before_anybody_is_asked(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        next(audit(**wrong))  # type: ignore[arg-type]
