"""Administration of MQTT clients and their sessions: list them, disconnect a client, end a session. Pure; tasks as in
``administration.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.client.administration import ALL_BROKERS, Ask, Task
from penstock.client.arguments import check_text
from penstock.errors import NoRoute, SessionNotFound, TopicNotFound
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.sessions import (
    CONNECTED,
    HOME_TOPIC,
    AskSubscriptions,
    ClosedSession,
    CloseSession,
    ListSessions,
    SeenPacket,
    SessionRow,
    SessionsPage,
    SessionTerms,
    Subscriptions,
)
from penstock.protocol.requests.topics import DescribeTopic, TopicDetail
from penstock.values import value

ANSWER_S: Final = 2.0
"""How long gateways have to say how their clients are connected."""


@value
class ConnectedClient:
    """An MQTT client that is connected.

    Attributes:
        client, user: its client id, and as whom it has logged in; no user: it is anonymous.
        gateway: where it is connected.
        address, protocol: where it comes from, and what it speaks, as ``MQTT 5 tcp``.
        connected_s: for how long it has been connected.
        subscriptions: to how many filters it is subscribed.

    What only its gateway knows is empty, 0 or -1 (subscriptions) where that did not answer in time.
    """

    client: str
    user: str
    gateway: str
    address: str
    protocol: str
    connected_s: float
    subscriptions: int


def clients() -> Task[list[ConnectedClient]]:
    """All MQTT clients that are connected, by client id. Raises ``NoRoute`` where no broker keeps sessions."""
    home = yield from home_of_sessions()
    found: list[ConnectedClient] = []
    after = 0
    while True:
        page: SessionsPage = yield Ask(home.address, ListSessions(after), SessionsPage)
        connected = [one for one in page.sessions if one.state == CONNECTED and one.owner]
        names = tuple([one.client for one in connected])
        told: Subscriptions = yield Ask(home.address, AskSubscriptions(names, False, ANSWER_S), Subscriptions)
        terms = {one.client: one for one in told.told}
        found += [_connected(one, terms.get(one.client)) for one in connected]
        after = page.after
        if not after:
            return sorted(found, key=lambda one: one.client)


def _connected(row: SessionRow, terms: SessionTerms | None) -> ConnectedClient:
    if terms is None:
        return ConnectedClient(row.client, row.user, row.owner, "", "", 0.0, -1)
    about = (terms.address, terms.protocol, terms.connected_s, terms.filters)
    return ConnectedClient(row.client, row.user, row.owner, *about)


def disconnect(client: str) -> Task[None]:
    """Cuts the connection of an MQTT client. Its session stays, so that it may come back; to keep it out use access
    rules. Raises ``SessionNotFound`` where it is not connected."""
    yield from _of_connected(AskSubscriptions((client,), False, ANSWER_S, disconnects=True), client)


def watch_client(client: str, after: int = 0) -> Task[tuple[SeenPacket, ...]]:
    """The MQTT packets of a client that its gateway has seen after this number, the last ones where they are too many.
    It is followed from the first call on, for as long as calls are less than some seconds apart. Raises
    ``SessionNotFound`` where it is not connected."""
    terms = yield from _of_connected(AskSubscriptions((client,), False, ANSWER_S, watch_after=after), client)
    return terms.packets


def _of_connected(request: AskSubscriptions, client: str) -> Task[SessionTerms]:
    """The answer of the gateway of one client. Raises ``SessionNotFound`` where it is not connected."""
    check_text("client", client)
    home = yield from home_of_sessions()
    told: Subscriptions = yield Ask(home.address, request, Subscriptions)
    if not told.told:
        raise SessionNotFound(f"no client {client} is connected", hint="`penstock client list` shows who is")
    return told.told[0]


def end_session(client: str) -> Task[None]:
    """Ends the session of an MQTT client: it is disconnected if it is there, its will is published, and its waiting
    messages are lost. Raises ``SessionNotFound``."""
    home = yield from home_of_sessions()
    epoch = 0
    while True:
        ended: ClosedSession = yield Ask(home.address, CloseSession(client, epoch, force=epoch > 0), ClosedSession)
        epoch = ended.epoch
        if not epoch:
            return


def home_of_sessions() -> Task[BrokerRoute]:
    """The broker that keeps the sessions."""
    routes: Sequence[BrokerRoute] = yield ALL_BROKERS
    for route in routes:
        try:
            _: TopicDetail = yield Ask(route.address, DescribeTopic(HOME_TOPIC), TopicDetail)
        except TopicNotFound:
            continue
        return route
    raise NoRoute("no broker keeps MQTT sessions", hint="no device has connected yet")
