"""Finds messages of a topic by their key, one word of it, or their unique id, on asyncio and on trio.

Each broker that has queues of the topic looks into its key index, a bounded piece per request, from its newest message
on; here their answers become one row, the newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType

import anyio

from penstock.client.addressing import check_servers
from penstock.client.arguments import OnlyAsync, check_flag, check_seconds
from penstock.client.completeness import brokers_to_read
from penstock.client.discovery import Discovery
from penstock.client.retry import TIMEOUT_S
from penstock.client.search import found_in, search_of
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import InvalidRequest, TimedOut
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Link, Links
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.messages import FindByKey, Pulled


def find(
    topic: str,
    key: str | bytes,
    *,
    servers: str | Sequence[str] = SERVERS,
    since: datetime | int = 0,
    until: datetime | int | None = None,
    timeout_s: float = TIMEOUT_S,
    allow_incomplete: bool = False,
    links: Links | None = None,
) -> Search:
    """A search for the stored messages of a topic with this key or id, newest first, found as they are asked for::

        async with find("orders", "customer-7") as found:
            async for message in found: ...

    Args:
        topic: where to look, named as in ``Message``.
        key: a message's key, one word of it, or its ``id``; of keys that are no text the whole key.
        servers: name servers, ``"host:port,host:port"`` or a list.
        since, until: only messages stored in this time, both included; also in milliseconds since 1970.
        timeout_s: deadline of entering the block and of each request.
        allow_incomplete: leave out brokers that are away; without it they are an error.
        links: ways to servers other than TCP, for programs that embed them.

    Raises:
        InvalidRequest: the key is empty, or an argument of a wrong type.
    """
    check_servers(servers)
    check_seconds("timeout_s", timeout_s)
    check_flag("allow_incomplete", allow_incomplete)
    return Search(search_of(topic, key, since, until), servers, timeout_s, allow_incomplete, links)


@dataclass(slots=True)
class _Source:
    """The messages that one broker has found, newest first, and where it continues (0: nowhere)."""

    broker: str
    link: Link
    before: int
    found: list[ReceivedMessage] = field(default_factory=list)


class Search(OnlyAsync):
    """Messages that are being found. ``find`` makes it; use it with ``async with`` and ``async for``."""

    def __init__(
        self,
        request: FindByKey,
        servers: str | Sequence[str],
        timeout_s: float,
        allow_incomplete: bool,
        links: Links | None,
    ) -> None:
        self._request = request
        self._servers = servers
        self._timeout_s = timeout_s
        self._allow_incomplete = allow_incomplete
        self._links = links
        self._tasks = TaskScope()
        self._sources: list[_Source] | None = None

    async def __aenter__(self) -> Search:
        """Finds the brokers. Raises ``NoRoute``, ``BrokerAway``, ``Unavailable`` and ``TimedOut``."""
        topic = self._request.topic
        await self._tasks.open()
        try:
            discovery = Discovery(self._servers, self._links or WireLinks(self._tasks))
            with anyio.move_on_after(self._timeout_s) as patience:
                holders = await discovery.holders(topic)
            if patience.cancelled_caught:
                raise TimedOut(f"no name server answered for topic {topic} within {self._timeout_s:g} s")
            routes = brokers_to_read(holders, topic, self._allow_incomplete)
        except BaseException:
            await self._tasks.close()
            raise
        before = self._request.before
        self._sources = [_Source(one.broker, discovery.link(one.address), before) for one in routes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._sources = None
        await self._tasks.close()

    def __aiter__(self) -> Search:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._sources is None:
            raise InvalidRequest("this search is not open", hint="use it inside `async with find(...) as found:`")
        for source in self._sources:
            while source.before and not source.found:
                request = replace(self._request, before=source.before)
                page = await ask(source.link, request, Pulled, self._timeout_s)
                source.found, source.before = found_in(page, source.broker), page.next
        newest = max((one for one in self._sources if one.found), key=lambda one: one.found[0].stored_ms, default=None)
        if newest is None:
            raise StopAsyncIteration
        return newest.found.pop(0)
