"""The watch at the home of sessions: calls of other gateways, and questions of operators."""

from __future__ import annotations

from typing import Any

from rig import Gateway

from gateway.sessions.session_state import decode_terms
from penstock.protocol.requests.sessions import (
    AskSubscriptions,
    SaveSessions,
    SessionTerms,
    Subscriptions,
    WatchSessions,
)


def subscriptions_at(gateway: Gateway, *clients: str, wants_terms: bool = False) -> dict[str, SessionTerms]:
    """What an operator is told of the subscriptions of these clients."""
    told: list[Any] = []
    gateway.broker.submit(AskSubscriptions(clients, wants_terms, 2.0), told.append)
    gateway.round()
    gateway.pass_time(3)
    [answer] = told
    assert isinstance(answer, Subscriptions)
    return {one.client: one for one in answer.told}


def known(told: dict[str, SessionTerms]) -> dict[str, SessionTerms]:
    """The same without where the clients are."""
    return {client: one._replace(address="", protocol="", connected_s=0.0) for client, one in told.items()}


def test_the_watch_for_calls_is_opened_once_and_again_when_it_is_over() -> None:
    gateway = Gateway()
    gateway.pass_time(29)
    assert len(gateway.broker.made(WatchSessions)) == 1
    gateway.pass_time(29)
    assert len(gateway.broker.made(WatchSessions)) == 2


def test_an_operator_is_told_what_clients_have_whose_sessions_are_not_kept() -> None:
    gateway = Gateway()
    gateway.pass_time(1)
    one, two = gateway.connect("one"), gateway.connect("two", level=5)
    one.subscribe("a/#", "b", "$share/g/c")
    saves = len(gateway.broker.made(SaveSessions))
    for _ in range(2):  # it is asked again as often as somebody wants to know
        told = subscriptions_at(gateway, "one", "two", "nobody")
        assert known(told) == {"one": SessionTerms("one", 3, False), "two": SessionTerms("two", 0, False)}
    two.subscribe("x", qos=1)
    told = subscriptions_at(gateway, "two", wants_terms=True)
    assert [(one.filter, one.qos) for one in decode_terms(told["two"].terms)] == [("x", 1)]
    assert len(gateway.broker.made(SaveSessions)) == saves, "nothing is stored for it"


def test_subscriptions_that_are_too_large_for_a_reply_are_counted() -> None:
    gateway = Gateway(subscriptions_max=2000)
    gateway.pass_time(1)
    client = gateway.connect("large", level=5)
    for at in range(0, 2000, 100):
        client.subscribe(*[f"{number}/{'x' * 1000}" for number in range(at, at + 100)])
    told = subscriptions_at(gateway, "large", wants_terms=True)
    assert known(told) == {"large": SessionTerms("large", 2000, True)}
