"""Finds messages of a topic by their key, one word of it, or their unique id.

Each broker that has queues of the topic looks into its key index, a bounded piece per request, from its newest message
on; here their answers become one row, the newest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from penstock.blocking.link import BlockingLink
from penstock.blocking.routes import Routes
from penstock.client.addressing import check_servers
from penstock.client.arguments import check_flag, check_wait
from penstock.client.completeness import brokers_to_read
from penstock.client.retry import TIMEOUT_S
from penstock.client.search import found_in, search_of
from penstock.protocol.addresses import SERVERS
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
) -> Iterator[ReceivedMessage]:
    """The stored messages of a topic with this key or id, newest first, found as they are asked for.

    Args:
        topic: where to look, named as in ``Message``.
        key: a message's key, one word of it, or its ``id``; of keys that are no text the whole key.
        servers: name servers, ``"host:port,host:port"`` or a list.
        since, until: only messages stored in this time, both included; also in milliseconds since 1970.
        timeout_s: deadline of each request.
        allow_incomplete: leave out brokers that are away; without it they are an error.

    Raises:
        InvalidRequest: the key is empty, or an argument of a wrong type.
        NoRoute: no broker has the topic.
        BrokerAway: a broker that has some of it is away.
        Unavailable, TimedOut: a server does not answer.
    """
    check_wait("timeout_s", timeout_s)
    check_servers(servers)
    check_flag("allow_incomplete", allow_incomplete)
    request = search_of(topic, key, since, until)
    return _found(request, servers, timeout_s, allow_incomplete)


def _found(
    request: FindByKey, servers: str | Sequence[str], timeout_s: float, allow_incomplete: bool
) -> Iterator[ReceivedMessage]:
    with Routes(servers, timeout_s) as routes:
        brokers = brokers_to_read(routes.holders(request.topic), request.topic, allow_incomplete)
        found = [_found_at(route.broker, routes.link(route.address), request) for route in brokers]
        yield from heapq.merge(*found, key=lambda message: -message.stored_ms)


def _found_at(broker: str, link: BlockingLink, request: FindByKey) -> Iterator[ReceivedMessage]:
    before = request.before
    while before:
        page = link.ask(replace(request, before=before), Pulled)
        yield from found_in(page, broker)
        before = page.next
