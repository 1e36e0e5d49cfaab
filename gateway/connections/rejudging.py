"""Checks subscriptions and client ids of connected clients again when the access rules change, a few at a time.

Each check costs what the rules cost: 40,000 clients with 200 rules at once stopped the gateway for longer than the home
of sessions waits for it. So each turn of a round's end checks some of them. Publications, new connections and new
subscriptions are judged by the new rules at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from gateway.delivery.downstream import Downstream
from gateway.login.auth import Identity
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.net.rounds import Stage
from gateway.publishing.judging import Judge
from gateway.sessions.lasting import Client
from gateway.sessions.session import Session
from gateway.sessions.subscriptions import Subscription
from topicmap.names import plain_filter

PER_TURN: Final = 16
"""Number of clients and subscriptions in a turn; a round's end has up to eight turns."""
_ID_TAKEN: Final = Told(ReasonCode.NOT_AUTHORIZED, "the access rules no longer let this user use the client id")


class Subscriber(Client, Protocol):
    """A connection (``gateway.connections.device.Device``)."""

    session: Session | None

    def forget_routes(self) -> None:
        """Whether it may publish to a name is to be asked again."""
        ...


class Rejudging(Stage):
    """The new judgement of connected clients, some in each turn. ``may_stay``: whether a client may still use its id.
    ``wake`` calls for a turn."""

    def __init__(
        self, judge: Judge, may_stay: Callable[[Identity], bool], downstream: Downstream, wake: Callable[[], None]
    ) -> None:
        self._judge = judge
        self._may_stay = may_stay
        self._downstream = downstream
        self._wake = wake
        self._left: Iterator[None] = iter(())
        self._is_on = False

    def begin(self, clients: Iterable[Subscriber]) -> None:
        """The rules have changed for these. What was left to be judged by the old ones need not be."""
        clients = list(clients)
        for client in clients:
            client.forget_routes()
        self._left = self._each(clients)
        self._is_on = True
        self._wake()

    def flush(self) -> None:
        """Judges some."""
        if self._is_on:
            self._is_on = sum(1 for _ in islice(self._left, PER_TURN)) == PER_TURN
            self._wake()  # for more, or for what follows from the subscriptions that have ended

    def _each(self, clients: Iterable[Subscriber]) -> Iterator[None]:
        for client in clients:
            session, identity = client.session, client.identity
            if session is None or identity is None:
                continue
            if session.device is client and not self._may_stay(identity):
                client.fail(_ID_TAKEN)
            if not session.subscriptions:
                yield
            for one in list(session.subscriptions.values()):
                if session.device is client:  # it may have gone meanwhile
                    self.judge(session, identity, one)
                yield

    def judge(self, session: Session, identity: Identity, subscription: Subscription) -> None:
        """Ends a subscription that the rules do not allow, if it stands."""
        stands = session.subscriptions.get(subscription.filter)
        filter = plain_filter(subscription.filter)
        if stands is not None and self._judge.unfit_subscription(identity, filter, stands.name):
            self._downstream.unsubscribe(session, subscription.filter)
