"""Administration: reading the audit log, the topic ``%AUDIT%``. Pure; tasks as in ``administration.py``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from penstock.client.administration import ALL_BROKERS, Ask, Task
from penstock.client.arguments import check_flag, check_integer, check_text, time_ms
from penstock.client.search import found_in
from penstock.errors import QueueNotFound
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.messages import BoundsReply, Pull, Pulled, QueryBounds
from penstock.protocol.requests.routes import BrokerRoute
from penstock.values import value
from topicmap.queues import AUDIT_TOPIC, topic_queue

PAGE: Final = 500
_QUEUE: Final = topic_queue(AUDIT_TOPIC, 0)
_BYTES: Final = 1 << 20


@value
class Audited:
    """A login or request, and the decision about it.

    Attributes:
        time_ms: when, in milliseconds since 1970.
        server: the broker, name server, gateway or console that decided.
        act: the request's name, or ``Login``, ``Publish``, ``Subscribe``, ``Will``; ``others``: those that were only
            counted.
        name: the topic, group, filter or client id that it is about; empty for the cluster.
        allowed: whether it was allowed.
        user, how: who did it, and by what that was proved; an empty user: it was not proved.
        client: the client id of a device.
        address: from where.
        why: the cause of a refusal.
        times: how often it happened within about a second.
    """

    time_ms: int
    server: str
    act: str
    name: str
    allowed: bool
    user: str
    how: str
    client: str
    address: str
    why: str
    times: int


def audit(since: datetime | int = 0, *, count: int = 100, user: str = "", refused: bool = False) -> Task[list[Audited]]:
    """The latest entries of the audit log of all brokers, oldest first.

    Args:
        since: not older than this; in milliseconds since 1970 if a number.
        count: maximum number of entries.
        user: only of this user.
        refused: only refusals.
    """
    from_ms = time_ms("since", since)
    check_integer("count", count)
    if user != "":
        check_text("user", user)
    check_flag("refused", refused)
    found: list[Audited] = []
    for route in (yield ALL_BROKERS):
        own: list[Audited] = []
        page, before = yield from _page(route, -1)
        while True:
            own += [one for one in page if (not user or one.user == user) and not (refused and one.allowed)]
            if not page or len(own) >= count or page[-1].time_ms < from_ms:
                break
            page, before = yield from _page(route, before)
        found += reversed(own)
    found = [one for one in found if one.time_ms >= from_ms]
    return sorted(found, key=lambda one: one.time_ms)[-count:] if count > 0 else []


def _page(route: BrokerRoute, before: int) -> Task[tuple[list[Audited], int]]:
    """The latest entries of a broker before an offset (-1: the latest of all), newest first, and the first one's
    offset."""
    try:
        found: BoundsReply = yield Ask(route.address, QueryBounds((_QUEUE,)), BoundsReply)
    except QueueNotFound:
        return [], 0  # nothing was ever kept there
    first, end = found.bounds[0].min, found.bounds[0].end if before < 0 else before
    begin = at = max(first, end - PAGE)
    messages: list[ReceivedMessage] = []
    while at < end:
        page: Pulled = yield Ask(route.address, Pull(_QUEUE, at, _BYTES, end - at), Pulled)
        if page.next <= at:
            break
        messages += found_in(page, route.broker)
        at = page.next
    return [_read(json.loads(one.body)) for one in reversed(messages)], begin


def _read(told: dict[str, Any]) -> Audited:
    texts = {name: str(told.get(name, "")) for name in ("server", "act", "name", "user", "how", "client", "address")}
    return Audited(
        time_ms=told["time_ms"],
        allowed=told["allowed"],
        why=str(told.get("why", "")),
        times=told.get("times", 1),
        **texts,
    )
