from __future__ import annotations

from typing import Any

import pytest

from penstock.blocking import Admin, Producer, bootstrap
from penstock.client.administration import ALL_BROKERS, Ask
from penstock.client.page_tasks import groups_page
from penstock.errors import NoRoute, OffsetOutOfRange, QueueNotFound, SessionNotFound
from penstock.protocol.received import MessageQueue
from penstock.protocol.requests.filters import OpenedFilters, OpenFilters
from penstock.protocol.requests.groups import GroupRow, GroupsPage, ListGroups
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import HOME_TOPIC, OpenedSession, OpenSession
from penstock.protocol.requests.topics import CreateTopic, TopicDetail
from tests.penstock.admin_scene import delay


def test_pages_of_two_brokers_are_one_list(two_brokers: Any) -> None:
    servers = two_brokers.servers
    with Admin(servers) as admin:
        for name, broker in (("a", "broker-a"), ("b", "broker-b"), ("c", ""), ("d", "broker-a"), ("x", "broker-b")):
            admin.create_topic(name, queues=1, broker=broker)
        first = admin.topics_page("", 3)
        assert [(one.topic, [at.broker for at in one.at]) for one in first.rows] == [
            ("a", ["broker-a"]),
            ("b", ["broker-b"]),
            ("c", ["broker-a", "broker-b"]),
        ]
        second = admin.topics_page(first.after, 3)
        assert ([one.topic for one in second.rows], second.after) == (["d", "x"], "")
        assert [one.topic for one in admin.topics_page(contains="x").rows] == ["x"]
        for name in "ghi":
            admin.reset_group(name, "c", to="latest")
        groups = admin.groups_page("", 2)
        assert ([one.group for one in groups.rows], groups.after) == (["g", "h"], "h")
        assert [(one.group, one.queues) for one in admin.groups_page("h").rows] == [("i", 2)]
        assert sorted(admin.figures()) == ["broker-a", "broker-b"]


def test_no_row_is_lost_where_a_broker_gives_fewer_rows_than_were_asked_for() -> None:
    names = {"a": ["a1", "a2", "a3", "z1"], "b": ["b1", "z1", "z2"]}  # of which a page has two at most
    found: list[str] = []
    after = ""
    while True:
        task = groups_page(after, 10)
        assert next(task) is ALL_BROKERS
        wanted = task.send(tuple([BrokerRoute(broker, broker, 1) for broker in names]))
        try:
            while True:
                assert isinstance(wanted, Ask)
                assert isinstance(wanted.request, ListGroups)
                start = wanted.request.after
                later = [one for one in names[wanted.address] if one > start]
                rows = tuple([GroupRow(one, 0, 1, 0, 0) for one in later[:2]])
                wanted = task.send(GroupsPage(rows, later[1] if len(later) > 2 else ""))
        except StopIteration as done:
            page = done.value
        found += [one.group for one in page.rows]
        after = page.after
        if not after:
            break
    assert found == ["a1", "a2", "a3", "b1", "z1", "z2"]


def test_levels_of_filters_are_those_of_any_broker(two_brokers: Any) -> None:
    with bootstrap(two_brokers.servers) as routes:
        for route, filters in zip(routes.brokers(), [("p/a", "p/b"), ("p/b", "q")], strict=True):
            routes.link(route.address).ask(OpenFilters("gw", filters), OpenedFilters)
    with Admin(two_brokers.servers) as admin:
        assert admin.filter_levels().levels == (("p", 2, 0), ("q", 1, 1))
        assert admin.filter_levels("p").levels == (("a", 1, 1), ("b", 1, 1))
        assert (admin.filter_levels("p", 1, 1).levels, admin.filter_levels("p", 1, 1).count) == ((("b", 1, 1),), 2)


def test_sessions_are_listed_and_shown_in_pages(real_cluster: Any) -> None:
    with Admin(real_cluster.servers) as admin:
        with pytest.raises(NoRoute):
            admin.sessions_page()
        with bootstrap(real_cluster.servers) as routes:
            link = routes.link(routes.brokers()[0].address)
            link.ask(CreateTopic(HOME_TOPIC, 1), TopicDetail)
            for client in ("c1", "other", "c2"):
                link.ask(OpenSession("gw", client, False, 60, b"", user="ada"), OpenedSession)
        page = admin.sessions_page(0, 2)
        assert [(one.client, one.user, one.waiting) for one in page.rows] == [("c1", "ada", 0), ("other", "ada", 0)]
        assert [one.client for one in admin.sessions_page(page.after).rows] == ["c2"]
        assert [one.client for one in admin.sessions_page(contains="c").rows] == ["c1", "c2"]
        state, subscriptions = admin.session("c2")
        assert (state.client, state.expiry_s, state.never_ends, subscriptions) == ("c2", 60, False, [])
        with pytest.raises(SessionNotFound):
            admin.session("nobody")


def test_delayed_messages_of_two_brokers_come_in_the_order_in_which_they_are_due(real_cluster: Any) -> None:
    timers = [delay(real_cluster.servers, b"x", 3_600_000 + at * 1000) for at in (2, 0, 1)]
    with Admin(real_cluster.servers) as admin:
        first = admin.delayed_page((0, 0), 2)
        assert ([one.id for one in first.rows], first.count) == ([timers[1].id, timers[2].id], 3)
        last = admin.delayed_page(first.after, 2)
        assert ([one.id for one in last.rows], last.after) == ([timers[0].id], (0, 0))


def test_a_queue_is_browsed_from_any_place(real_cluster: Any) -> None:
    with Admin(real_cluster.servers) as admin, Producer(servers=real_cluster.servers) as producer:
        admin.create_topic("t", queues=1)
        for number in range(5):
            producer.send("t", b"%d" % number)
        queue = MessageQueue("broker-a", "t", 0)
        for at, bodies, following in [
            ("earliest", [b"0", b"1"], 2),
            ("latest", [b"3", b"4"], 5),
            (3, [b"3", b"4"], 5),
            (99, [], 5),
            (-5, [b"0", b"1"], 2),
        ]:
            messages, offset, bounds = admin.browse(queue, at, 2)  # type: ignore[arg-type]
            assert ([one.body for one in messages], offset, bounds.end) == (bodies, following, 5)
        with pytest.raises(QueueNotFound):
            admin.browse(MessageQueue("broker-a", "none", 0), 0)
        with pytest.raises(OffsetOutOfRange):
            admin.message("broker-a:1")
