"""Tells every name server that this broker lives and what it holds. Each name server is told by a task of its own.

The whole list of topics goes out when it changed and when a name server does not know us; else a heartbeat renews
the lease. With it go the names of the other brokers that were ever seen, so that a name server that was started anew
knows for whom to wait before it calls a topic unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from broker.service import BrokerService
from broker.settings import BrokerSettings
from penstock.errors import PenstockError
from penstock.link import Link, Links
from penstock.requests.routes import (
    BrokerHeartbeat,
    HeartbeatReply,
    QueryRoute,
    RegisterBroker,
    Route,
    UnregisterBroker,
)
from penstock.wire_link import call

CALL_S: Final = 5.0
RETRY_S: Final = 1.0
START_S: Final = 1.0
LEAVE_S: Final = 1.0

_log = logging.getLogger(__name__)


class Registration:
    """The leases of one broker with all its name servers.

    Attributes:
        away: those that did not answer when they were last told.
    """

    def __init__(self, settings: BrokerSettings, address: str, service: BrokerService, links: Links) -> None:
        self._settings = settings
        self._address = address
        self._service = service
        self._links = links
        self._changed: dict[str, trio.Event] = {}
        self._peers = service.homes()
        self.away: set[str] = set()

    def topics_changed(self) -> None:
        """Name servers are told at once."""
        for event in self._changed.values():
            event.set()

    def lost(self, address: str) -> None:
        """The connection to a server has ended. A name server that begins anew knows nobody: it is told as soon as it
        is there again."""
        event = self._changed.get(address)
        if event is not None:
            event.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the leases with all name servers until cancelled. Started when each was tried once; one that does not
        answer holds nobody up for longer than ``START_S``."""
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
        registered = -1
        while True:
            self._changed[namesrv] = trio.Event()
            try:
                registered = await self._renew(link, registered)
                await self._meet(link)
                wait_s = self._settings.register_every_s
                if namesrv in self.away:
                    _log.warning("name server %s answers again", namesrv)
                self.away.discard(namesrv)
            except PenstockError as error:
                if namesrv not in self.away:  # it is asked again every second or so
                    _log.warning("name server %s lost: %s", namesrv, error)
                registered, wait_s = -1, RETRY_S
                self.away.add(namesrv)
            tried(namesrv)
            with trio.move_on_after(wait_s):
                await self._changed[namesrv].wait()

    async def _renew(self, link: Link, registered: int) -> int:
        """Registers or renews; returns the version of the topics that the name server has now."""
        version, topics = self._service.routes()
        name, lease_s = self._settings.name, self._settings.lease_s
        if registered == version:
            reply = await call(link, BrokerHeartbeat(name, self._address, version, lease_s), CALL_S)
            assert isinstance(reply, HeartbeatReply)
            if reply.known:
                return version
        peers = tuple(sorted(self._peers))
        await call(link, RegisterBroker(name, self._address, version, lease_s, topics, peers), CALL_S)
        return version

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
        try:
            await call(self._links.link(namesrv), UnregisterBroker(self._settings.name, self._address), LEAVE_S)
        except PenstockError as error:
            _log.info("name server %s was not told of the stop: %s", namesrv, error)
