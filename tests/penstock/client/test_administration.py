"""What administrators ask, with the answers by hand: only what no real cluster shows easily."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.administration import ALL_BROKERS, Ask, cancel, commit, delayed, rollback
from penstock.errors import InvalidRequest, TimerNotFound
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.timers import ListTimers, Timer, TimersPage

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)


def test_every_page_of_every_broker_is_asked_for_and_all_come_in_the_order_in_which_they_are_due() -> None:
    task = delayed()
    assert next(task) is ALL_BROKERS
    wanted = task.send((A, B))
    assert wanted == Ask("host:1", ListTimers(0, 0, 500), TimersPage)
    wanted = task.send(TimersPage((Timer(7, 30, "t", "k", 9),), 30, 7, 2, 18))
    assert wanted == Ask("host:1", ListTimers(30, 7, 500), TimersPage)
    wanted = task.send(TimersPage((Timer(8, 50, "t", "", 9),), 0, 0, 2, 18))
    assert wanted == Ask("host:2", ListTimers(0, 0, 500), TimersPage)
    with pytest.raises(StopIteration) as ended:
        task.send(TimersPage((Timer(3, 40, "u", "", 9),), 0, 0, 1, 9))
    assert [(one.broker, one.id, one.due_ms) for one in ended.value.value] == [("a", 7, 30), ("b", 3, 40), ("a", 8, 50)]


def test_where_there_are_several_brokers_one_is_named_and_a_wrong_name_says_which_there_are() -> None:
    task = cancel("", 7, 30)
    next(task)
    with pytest.raises(InvalidRequest, match="say at which broker: a, b"):
        task.send((A, B))
    task = cancel("c", 7, 30)
    next(task)
    with pytest.raises(TimerNotFound, match="no broker 'c'; there are a, b"):
        task.send((A, B))


@pytest.mark.parametrize("id", [None, "7", 1.5, [], 2**64])
def test_a_half_and_a_timer_are_named_by_whole_numbers(id: Any) -> None:
    for task in (commit("a", id), rollback("a", id), cancel("a", id, 30)):
        with pytest.raises(InvalidRequest, match=r"id is (a whole number, not|at most)"):
            next(task)
