"""Tells every name server that this broker lives and what it holds. Each name server is told by a task of its own.

The whole list of topics goes out when it changed and when a name server does not know us; else a heartbeat renews
the lease.
"""

from __future__ import annotations

import logging

import trio

from broker.service import BrokerService
from broker.settings import BrokerSettings
from penstock.errors import PenstockError
from penstock.link import Link, Links
from penstock.requests import BrokerHeartbeat, HeartbeatReply, RegisterBroker, UnregisterBroker
from penstock.wire_link import call

CALL_S = 5.0
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class Registration:
    """The leases of one broker with all its name servers."""

    def __init__(self, settings: BrokerSettings, address: str, service: BrokerService, links: Links) -> None:
        self._settings = settings
        self._address = address
        self._service = service
        self._links = links
        self._changed: dict[str, trio.Event] = {}

    def topics_changed(self) -> None:
        """Name servers are told at once."""
        for event in self._changed.values():
            event.set()

    async def run(self, namesrv: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the lease with one name server until cancelled; started when it was tried once."""
        link = self._links.link(namesrv)
        registered = -1
        started = False
        while True:
            self._changed[namesrv] = trio.Event()
            try:
                registered = await self._renew(link, registered)
                wait_s = self._settings.register_every_s
            except PenstockError as error:
                _log.warning("name server %s: %s", namesrv, error)
                registered, wait_s = -1, RETRY_S
            if not started:
                task_status.started()
                started = True
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
        await call(link, RegisterBroker(name, self._address, version, lease_s, topics), CALL_S)
        return version

    async def leave(self) -> None:
        """A clean stop: every name server forgets us at once."""
        for namesrv in self._settings.namesrv:
            try:
                request = UnregisterBroker(self._settings.name, self._address)
                await call(self._links.link(namesrv), request, RETRY_S)
            except PenstockError as error:
                _log.info("name server %s was not told of the stop: %s", namesrv, error)
