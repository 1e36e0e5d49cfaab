"""Registers this broker and its topics at every name server. Each name server has a task of its own.

A name server that does not know the broker gets the whole list of topics in parts, and the names of the other brokers
that were ever seen: a name server that starts anew waits for these before it calls a topic unknown. After that a
heartbeat renews the lease and carries only topics that are new, changed or gone. A node of a group of copies says
whether it leads and in which epoch, and registers anew when that changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import trio

from broker.settings import BrokerSettings
from broker.state import BrokerState
from penstock.client.wire_link import ask, call
from penstock.errors import Fenced, PenstockError, Unavailable
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    Challenge,
    HeartbeatReply,
    ProveBroker,
    QueryChallenge,
    QueryRoute,
    RegisterBroker,
    Route,
    TopicRoute,
    UnregisterBroker,
)
from penstock.service.cluster_secret import broker_proof

CALL_S: Final = 5.0
PART: Final = 10_000
"""Number of topics with the longest names that fit into a request."""
RETRY_S: Final = 1.0
RENEWALS: Final = 4
"""A lease is renewed this often while it lasts."""
START_S: Final = 1.0
LEAVE_S: Final = 1.0

_log = logging.getLogger(__name__)


class Rank(NamedTuple):
    """The place of a node in its group of copies.

    Attributes:
        epoch: in which it leads, or that of the leader that it follows; 0: a broker without copies.
        is_reader: whether it follows.
        committed: up to which position it can be read.
        log_id: of its log.
    """

    epoch: int = 0
    is_reader: bool = False
    committed: int = 0
    log_id: str = ""


ALONE: Final = Rank()


class Registration:
    """The leases of one broker with all its name servers.

    Args:
        settings: the broker's.
        address: the broker's address for clients.
        state: what the broker holds.
        links: the ways to the name servers.
        secret: the cluster's, to prove that this is the broker; None where it has none.
        rank: tells the node's place in its group now.

    Attributes:
        away: those that did not answer when they were last told.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        state: BrokerState,
        links: Links,
        secret: bytes | None = None,
        rank: Callable[[], Rank] = lambda: ALONE,
    ) -> None:
        self._settings = settings
        self._address = address
        self._state = state
        self._links = links
        self._changed: dict[str, trio.Event] = {}
        self._peers = state.homes()
        self._secret = secret
        self._rank = rank
        self._proved: set[str] = set()  # name servers whose connection has had our proof
        self.away: set[str] = set()

    def topics_changed(self) -> None:
        """The topics, or this node's place in its group, have changed: all name servers get the change at once."""
        for event in self._changed.values():
            event.set()

    def lost(self, address: str) -> None:
        """The connection to a server has ended. A name server that starts anew knows no broker: it gets the list as
        soon as it answers."""
        self._proved.discard(address)
        event = self._changed.get(address)
        if event is not None:
            event.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the leases with all name servers until cancelled. Started when each was tried once; one that does not
        answer delays the start by at most ``START_S``."""
        untried = dict.fromkeys(self._settings.namesrv)
        all_tried = trio.Event()

        def tried(namesrv: str) -> None:
            untried.pop(namesrv, None)
            if not untried:
                all_tried.set()

        async with trio.open_nursery() as nursery:
            for namesrv in self._settings.namesrv:
                nursery.start_soon(self._keep, namesrv, tried)
            with trio.move_on_after(START_S if untried else 0):
                await all_tried.wait()
            task_status.started()

    async def _keep(self, namesrv: str, tried: Callable[[str], None]) -> None:
        link = self._links.link(namesrv)
        registered, stood = -1, ALONE
        while True:
            self._changed[namesrv] = trio.Event()
            try:
                await self._prove(namesrv, link)
                rank = self._rank()
                if (stood.epoch, stood.is_reader) != (rank.epoch, rank.is_reader):
                    registered = -1
                registered, stood = await self._renew(link, registered, rank), rank
                await self._meet(link)
                wait_s = self._settings.lease_s / RENEWALS
                if namesrv in self.away:
                    _log.warning("name server %s answers again", namesrv)
                self.away.discard(namesrv)
            except Fenced as error:
                _log.info("name server %s knows of a later leader: %s", namesrv, error)
                registered, wait_s = -1, RETRY_S
            except PenstockError as error:
                if namesrv not in self.away:  # it is asked again every second or so
                    _log.warning("name server %s lost: %s", namesrv, error)
                registered, wait_s = -1, RETRY_S
                self._proved.discard(namesrv)
                self.away.add(namesrv)
            tried(namesrv)
            with trio.move_on_after(wait_s):
                await self._changed[namesrv].wait()

    async def _prove(self, namesrv: str, link: Link) -> None:
        """Proves to a name server that this is the broker, once in a connection. It asks for that if it has a secret
        too."""
        if self._secret is None or namesrv in self._proved:
            return
        self._proved.add(namesrv)  # a connection that is lost meanwhile takes it back
        challenge = await ask(link, QueryChallenge(), Challenge, CALL_S)
        if challenge.nonce:
            name = self._settings.name
            proof = broker_proof(self._secret, challenge.nonce, name, self._address)
            await call(link, ProveBroker(name, self._address, proof), CALL_S)

    async def _renew(self, link: Link, registered: int, rank: Rank) -> int:
        """Registers or renews; returns the version of the topics that the name server has now."""
        changed = self._state.changed_routes(registered) if registered >= 0 else None
        if changed is not None:
            version, topics = changed
            if await self._beat(link, _parts(topics), registered, version, rank):
                return version
        version, topics = self._state.routes()
        first, *others = _parts(topics)
        name, lease_s, peers = self._settings.name, self._settings.lease_s, tuple(sorted(self._peers))
        more = bool(others)
        request = RegisterBroker(name, self._address, version, lease_s, first, peers, more, *rank)
        await call(link, request, CALL_S)
        if not await self._beat(link, others, version, version, rank):
            raise Unavailable("it does not know the broker although it has just registered")
        return version

    async def _beat(
        self, link: Link, parts: Sequence[tuple[TopicRoute, ...]], before: int, version: int, rank: Rank
    ) -> bool:
        """Sends the changes since the version ``before``, in parts. False if it is not the one on file."""
        for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            name, lease_s = self._settings.name, self._settings.lease_s
            request = BrokerHeartbeat(name, self._address, version, lease_s, part, before, left > 0, *rank[:3])
            reply = await call(link, request, CALL_S)
            assert isinstance(reply, HeartbeatReply)
            if not reply.known:
                return False
            before = version
        return True

    async def _meet(self, link: Link) -> None:
        """Learns who else is there."""
        reply = await call(link, QueryRoute(""), CALL_S)
        assert isinstance(reply, Route)
        self._peers |= {route.broker for route in reply.brokers} - {self._settings.name}

    async def leave(self) -> None:
        """A clean stop: every name server forgets us at once."""
        async with trio.open_nursery() as nursery:
            for namesrv in self._settings.namesrv:
                nursery.start_soon(self._leave, namesrv)

    async def _leave(self, namesrv: str) -> None:
        link = self._links.link(namesrv)
        try:
            await self._prove(namesrv, link)
            await call(link, UnregisterBroker(self._settings.name, self._address), LEAVE_S)
        except PenstockError as error:
            _log.info("name server %s did not get the goodbye: %s", namesrv, error)


def _parts(topics: tuple[TopicRoute, ...]) -> list[tuple[TopicRoute, ...]]:
    """In their order; at least one."""
    return [topics[at : at + PART] for at in range(0, len(topics), PART)] or [()]
