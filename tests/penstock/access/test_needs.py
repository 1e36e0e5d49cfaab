"""What each request needs: the page has every cell of the table, and the system's topics are not for everybody."""

from __future__ import annotations

import pytest
from access_table import BEGIN, COLUMNS, END, PAGE, table

from penstock.access.acl import ADMIN, CONSUME, GROUP, PRODUCE, VIEW
from penstock.access.needs import NEEDS, PEER, Need, needs_of, of_topic, topic_of_queue
from penstock.protocol.requests.replicas import RemoveReplica
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import PutConfig
from penstock.protocol.requests.servers import ChangeSetting
from penstock.protocol.requests.sessions import AskSubscriptions, CloseSession
from penstock.protocol.requests.table import REQUESTS
from penstock.protocol.requests.transactions import WatchHalves
from topicmap.queues import SYSTEM_PREFIX, TRACE_TOPIC


def test_the_page_has_an_answer_for_every_request_and_everybody() -> None:
    drawn = table()
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == drawn, "run tests/house/access_table.py"
    assert set(NEEDS) == set(REQUESTS.values())
    for line in drawn.splitlines()[2:]:
        assert all(cell.strip() for cell in line.strip("|").split("|"))
        assert line.count("|") == 3 + len(COLUMNS)


@pytest.mark.parametrize(
    ("action", "topic", "need"),
    [
        (CONSUME, "orders", Need((CONSUME,), "orders")),
        (CONSUME, "%RETRY%billing", Need((GROUP,), "billing")),
        (CONSUME, "%DLQ%billing", Need((GROUP,), "billing")),
        (PRODUCE, "%RETRY%billing", Need((PEER,))),
        (CONSUME, TRACE_TOPIC, Need((VIEW,))),
        (CONSUME, f"{SYSTEM_PREFIX}x", Need((PEER,))),
        (PRODUCE, "%24SYS", Need((PEER,))),
        (PRODUCE, "%24events", Need((PEER,))),
        (CONSUME, "%24events", Need((PEER,))),
    ],
)
def test_topics_of_the_system_have_needs_of_their_own(action: str, topic: str, need: Need) -> None:
    assert of_topic((action,), topic) == need


@pytest.mark.parametrize("queue", ["~filter:#", "$pop/g/orders:0", "no queue", ""])
def test_queues_of_gateways_are_not_for_clients(queue: str) -> None:
    assert of_topic((CONSUME,), topic_of_queue(queue)) == Need((PEER,))


def test_a_redriver_is_as_its_group() -> None:
    assert NEEDS[WatchHalves].needs(WatchHalves("redrive billing", 1.0)) == (Need((GROUP,), "billing"),)


def test_who_views_clients_may_neither_disconnect_one_nor_follow_its_packets() -> None:
    needs = NEEDS[AskSubscriptions].needs
    assert needs(AskSubscriptions(("a",), True, 1.0)) == (Need((VIEW,)),)
    for more in ({"disconnects": True}, {"watch_after": 0}, {"watch_after": 9}):
        assert needs(AskSubscriptions((), False, 1.0, **more)) == (Need((ADMIN,)),)
        found = needs(AskSubscriptions(("a", "b"), False, 1.0, **more))
        assert [(one.actions, one.name, one.about) for one in found] == [((ADMIN,), "", "a"), ((ADMIN,), "", "b")]


@pytest.mark.parametrize(
    ("request_", "about"),
    [
        (CloseSession("d7"), "d7"),
        (ChangeSetting("log_level", "debug"), "log_level = debug"),
        (PutConfig("ns", "key", "secret value"), "ns key"),
        (RemoveReplica("node-b"), "node-b"),
    ],
)
def test_an_act_of_administration_says_what_it_is_about(request_: Request, about: str) -> None:
    assert needs_of(request_) == (Need((ADMIN,), about=about),)
