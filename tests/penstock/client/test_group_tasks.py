"""What administrators ask of groups, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.client.administration import ALL_BROKERS, Ask
from penstock.client.group_tasks import GroupState, delete_group, groups, reset_group
from penstock.errors import Fenced, InvalidRequest, ResetIncomplete, TimedOut
from penstock.protocol.requests.groups import (
    CommitOffsets,
    GroupDetail,
    GroupOffsets,
    GroupRow,
    GroupsPage,
    ListGroups,
    MemberInfo,
    QueueOffset,
)
from penstock.protocol.requests.messages import BoundsReply
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.topics import Bounds, TopicDetail

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)


def test_a_group_is_one_however_many_brokers_and_pages_have_it() -> None:
    task = groups()
    assert next(task) is ALL_BROKERS
    assert task.send((A, B)) == Ask("host:1", ListGroups(), GroupsPage)
    assert task.send(GroupsPage((GroupRow("g", 1, 2, 3, 6),), "g")) == Ask("host:1", ListGroups("g"), GroupsPage)
    assert task.send(GroupsPage((GroupRow("h", 0, 1, 0, 0),), "")) == Ask("host:2", ListGroups(), GroupsPage)
    with pytest.raises(StopIteration) as ended:
        task.send(GroupsPage((GroupRow("g", 2, 1, 4, 1),), ""))
    assert ended.value.value == [GroupState("g", 2, 3, 7, 7), GroupState("h", 0, 1, 0, 0)]


def test_nothing_of_a_group_is_deleted_while_a_gateway_holds_it_anywhere() -> None:
    task = delete_group("g")
    next(task)
    task.send((A, B))
    task.send(GroupDetail("g", 1, (), ()))
    with pytest.raises(Fenced, match="gateways hold the position g: gw/1"):
        task.send(GroupDetail("g", 1, (), (), ("gw/1",)))


def begun_reset(**where: Any) -> Any:
    """A reset at two brokers that has asked both and now moves the group."""
    task = reset_group("g", "t", **where)
    next(task)
    task.send((A, B))
    for broker in (A, B):
        task.send(GroupDetail("g", 1, (), ()))
        task.send(TopicDetail("t", 1, "disk", (Bounds("t:0", 0, 9),)))
        task.send(BoundsReply((Bounds("t:0", 0, 9),)))
        asked = task.send(GroupOffsets((QueueOffset("t:0", 5),)))
        assert broker is A or isinstance(asked.request, CommitOffsets), "nothing is moved before all were asked"
    return task


def test_a_group_is_moved_nowhere_while_it_is_read_at_one_broker() -> None:
    task = reset_group("g", "t", to="earliest")
    next(task)
    task.send((A, B))
    task.send(GroupDetail("g", 1, (), ()))
    task.send(TopicDetail("t", 1, "disk", ()))
    with pytest.raises(Fenced, match="group g has members"):
        task.send(GroupDetail("g", 1, (MemberInfo("m", ()),), ()))


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ({"to": "earliest"}, "repeat it; brokers that have moved it already stay where they are"),
        ({"by": -1}, r"--broker b\): others would move once more; first see whether b has moved"),
    ],
)
def test_a_reset_that_one_broker_did_not_answer_says_how_to_repeat_it(where: Any, hint: str) -> None:
    task = begun_reset(**where)
    task.send(Done())
    with pytest.raises(ResetIncomplete, match="moved at a; not at b: no answer") as caught:
        task.throw(TimedOut("no answer"))
    assert re.search(hint, caught.value.hint)
    assert (caught.value.unknown, [one.queue.broker for one in caught.value.moved]) == (True, ["a"])


@pytest.mark.parametrize("by", ["x", 1.5, True])
def test_a_group_is_moved_by_whole_messages(by: Any) -> None:
    with pytest.raises(InvalidRequest, match="by is a whole number of messages, not"):
        next(reset_group("g", "t", by=by))
