"""What administrators ask of MQTT clients, with the answers by hand: only what no real system shows easily."""

from __future__ import annotations

import pytest

from penstock.client.administration import Ask
from penstock.client.session_tasks import ANSWER_S, clients, disconnect
from penstock.errors import NoRoute, SessionNotFound, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import (
    CONNECTED,
    HOME_TOPIC,
    RELEASED,
    AskSubscriptions,
    ListSessions,
    SessionRow,
    SessionsPage,
    SessionTerms,
    Subscriptions,
)
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail

A, B = BrokerRoute("a", "host:1", 0), BrokerRoute("b", "host:2", 0)
HOME = TopicDetail(HOME_TOPIC, 1, "disk", ())


def row(client: str, state: int = CONNECTED, owner: str = "gw") -> SessionRow:
    return SessionRow(client, 1, owner, state, "", 0, 0, b"", b"")


def test_the_home_of_sessions_is_asked_wherever_it_is_page_by_page() -> None:
    task = clients()
    next(task)
    assert task.send((A, B)) == Ask("host:1", DescribeTopic(HOME_TOPIC), TopicDetail)
    task.throw(TopicNotFound("not here"))
    assert task.send(HOME) == Ask("host:2", ListSessions(0), SessionsPage)
    asked = task.send(SessionsPage((row("d8"), row("away", RELEASED, "")), 9))
    assert asked == Ask("host:2", AskSubscriptions(("d8",), False, ANSWER_S), Subscriptions)
    assert task.send(Subscriptions(())) == Ask("host:2", ListSessions(9), SessionsPage)
    task.send(SessionsPage((row("d7"),), 0))
    with pytest.raises(StopIteration) as ended:
        task.send(Subscriptions((SessionTerms("d7", 3, False, b"", "10.0.0.1", "MQTT 5 tcp", 7.5),)))
    assert [(one.client, one.address, one.subscriptions) for one in ended.value.value] == [
        ("d7", "10.0.0.1", 3),
        ("d8", "", -1),
    ]


def test_a_client_that_no_gateway_has_is_not_found_and_without_a_home_there_are_none() -> None:
    task = disconnect("d7")
    next(task)
    task.send((A,))
    assert task.send(HOME) == Ask("host:1", AskSubscriptions(("d7",), False, ANSWER_S, disconnects=True), Subscriptions)
    with pytest.raises(SessionNotFound, match="no client d7 is connected"):
        task.send(Subscriptions(()))
    task = disconnect("d7")
    next(task)
    task.send((A,))
    with pytest.raises(NoRoute, match="no broker keeps MQTT sessions"):
        task.throw(TopicNotFound("not here"))
