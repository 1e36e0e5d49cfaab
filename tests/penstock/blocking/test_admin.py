from __future__ import annotations

from typing import Any

import pytest

from penstock.blocking import Admin
from penstock.errors import InvalidRequest, TimerNotFound, TopicNotFound
from tests.penstock.admin_scene import begin, delay, kill


def test_sleeping_messages_are_seen_and_decided(real_cluster: Any) -> None:
    servers = real_cluster.servers
    timer, half = delay(servers, b"1"), begin(servers, b"2")
    kill(servers, b"3")
    with Admin(servers) as admin:
        [delayed], [transaction], [letters] = admin.delayed(), admin.transactions(), admin.dead_letters()
        assert (delayed.id, delayed.due_ms, transaction.id, letters.waiting) == (timer.id, timer.due_ms, half, 1)
        admin.cancel("broker-a", timer.id, timer.due_ms)
        with pytest.raises(TimerNotFound):
            admin.cancel("", timer.id, timer.due_ms)
        admin.check("", half)
        admin.commit("", half)
        [letter] = admin.letters_of("billing")
        assert (letter.message.body, letter.reason) == (b"3", "no way")
        assert [one.error for one in admin.redrive("billing")] == [None]
        with pytest.raises(TopicNotFound, match="has no dead letters"):
            admin.letters_of("other")


def test_an_admin_that_is_not_open_says_so() -> None:
    with pytest.raises(InvalidRequest, match="with Admin"):
        Admin("127.0.0.1:1").delayed()


def test_a_topic_is_deleted(real_cluster: Any) -> None:
    kill(real_cluster.servers, b"1", b"2")
    with Admin(real_cluster.servers) as admin:
        assert admin.delete_topic("orders") == {"broker-a": 2}
        with pytest.raises(TopicNotFound):
            admin.delete_topic("orders")
