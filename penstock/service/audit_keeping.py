"""Stores a server's audit trail in the topic ``%AUDIT%``, about once a second: at the broker of the server's own
process, or at one that the name servers name. While no broker is there it is tried again; the trail bounds it.
What a broker refuses as wrong or too large goes again in halves; an entry that is refused alone is logged and counted
as lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from penstock.client.wire_link import call
from penstock.errors import InvalidRequest, PenstockError, TooLarge, Unavailable
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.messages import TellAudited
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.routes import QueryRoute, Route
from penstock.service.audit import Trail

EVERY_S: Final = 1.0
GOODBYE_S: Final = 1.0
"""Seconds that a server which ends gives its last entries."""
_log = logging.getLogger(__name__)

Store = Callable[[TellAudited], Awaitable[None]]
"""Has a broker store entries. Raises ``PenstockError``."""

Live = Callable[[], Awaitable[Sequence[str]]]
"""Returns the addresses of the live brokers."""


async def keep_audit(trail: Trail, server: str, store: Store, *, goodbye_s: float = GOODBYE_S) -> None:
    """Stores entries until cancelled, and then the rest. ``server``: whose trail it is. ``goodbye_s``: how long it
    waits for the last answer; 0 where the entries are handed over without waiting."""
    try:
        while True:
            await trio.sleep(EVERY_S)
            await _keep(trail, server, store)
    finally:
        with trio.move_on_after(goodbye_s, shield=True):
            await _keep(trail, server, store)


async def _keep(trail: Trail, server: str, store: Store) -> None:
    waiting = [entries] if (entries := trail.take()) else []
    while waiting:
        part = waiting.pop()
        try:
            await store(TellAudited(server, part))
        except PenstockError as error:
            if not isinstance(error, TooLarge | InvalidRequest):
                trail.put_back(part + sum(waiting, ()))
                _log.debug("the audit log waits for a broker: %s", error)
                return
            if len(part) > 1:  # what is wrong with one of them must not keep the others away
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
            else:
                trail.give_up(part)
                _log.error("an entry of the audit log is lost, for no broker takes it: %s: %s", part[0].act, error)
        except trio.Cancelled:
            trail.put_back(part + sum(waiting, ()))
            raise


def at_brokers(links: Links, namesrv: Sequence[str]) -> Store:
    """Stores at the first broker that takes entries, of those that the name servers name."""
    return at_live(links, named_by(links, namesrv))


def named_by(links: Links, namesrv: Sequence[str]) -> Live:
    """Asks the first name server that answers which brokers are live."""

    async def live() -> Sequence[str]:
        found = await _first(links, namesrv, QueryRoute(""))
        return [one.address for one in found.brokers] if isinstance(found, Route) else []

    return live


def at_live(links: Links, live: Live) -> Store:
    """Stores at the first of the live brokers that takes entries."""

    async def store(request: TellAudited) -> None:
        await _first(links, await live(), request)

    return store


def at_own(own: Link, others: Store) -> Store:
    """Stores at the broker of this process, or at others while it does not lead its log."""

    async def store(request: TellAudited) -> None:
        try:
            await call(own, request)
        except Unavailable:
            await others(request)

    return store


async def _first(links: Links, addresses: Sequence[str], request: Request) -> Reply:
    """The first answer of one of these servers. Raises the last one's error."""
    failed = PenstockError("there is no broker")
    for address in addresses:
        try:
            return await call(links.link(address), request)
        except PenstockError as error:
            failed = error
    raise failed
