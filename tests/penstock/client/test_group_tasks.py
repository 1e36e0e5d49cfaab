"""What administrators ask of groups, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.administration import ALL_BROKERS, Ask
from penstock.client.group_tasks import delete_group, groups, reset_group
from penstock.errors import Fenced, GroupNotFound, InvalidRequest
from penstock.protocol.requests.groups import DescribeGroup, GroupDetail, GroupLag, GroupNames, ListGroups
from penstock.protocol.requests.routes import BrokerRoute

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)


def test_a_group_is_one_however_many_brokers_have_it_and_one_that_goes_meanwhile_is_left_out() -> None:
    task = groups()
    assert next(task) is ALL_BROKERS
    assert task.send((A, B)) == Ask("host:1", ListGroups(), GroupNames)
    assert task.send(GroupNames(("g",))) == Ask("host:1", DescribeGroup("g"), GroupDetail)
    task.send(GroupDetail("g", 1, (), (GroupLag("t:0", -1, 5), GroupLag("t:1", 3, 4))))
    task.send(GroupNames(("g", "h")))
    task.send(GroupDetail("g", 1, (), (GroupLag("t:0", 1, 2),)))
    with pytest.raises(StopIteration) as ended:
        task.throw(GroupNotFound("h"))
    assert [(one.group, one.queues, one.lag) for one in ended.value.value] == [("g", 3, 7)]


def test_nothing_of_a_group_is_deleted_while_a_gateway_holds_it_anywhere() -> None:
    task = delete_group("g")
    next(task)
    task.send((A, B))
    task.send(GroupDetail("g", 1, (), ()))
    with pytest.raises(Fenced, match="gateways hold the position g: gw/1"):
        task.send(GroupDetail("g", 1, (), (), ("gw/1",)))


@pytest.mark.parametrize("by", ["x", 1.5, True])
def test_a_group_is_moved_by_whole_messages(by: Any) -> None:
    with pytest.raises(InvalidRequest, match="by is a whole number of messages, not"):
        next(reset_group("g", "t", by=by))
