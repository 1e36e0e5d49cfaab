"""Administration of single messages: where one is stored, and its trace. Pure; tasks as in ``administration.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from penstock.client.administration import ALL_BROKERS, Ask, Task, broker_named
from penstock.client.arguments import Place, check_integer, check_text, time_ms
from penstock.client.search import found_in
from penstock.errors import InvalidRequest, NoRoute, TopicNotFound
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.messages import (
    BoundsReply,
    FindByKey,
    OffsetReply,
    Pull,
    Pulled,
    QueryBounds,
    ReadAt,
    SeekTime,
)
from penstock.protocol.requests.topics import Bounds
from penstock.values import value
from topicmap.queues import TRACE_TOPIC

BROWSED_BYTES: Final = 1 << 20
"""About how many bytes of messages one answer has."""


@value
class TraceRow:
    """An event of a traced message.

    Attributes:
        time_ms: when, in milliseconds since 1970.
        event: ``produced``, ``stored``, ``delivered``, ``acknowledged``, ``retried`` or ``dead``.
        broker, queue, offset: where; none where it was produced.
        who: the group, filter, or sender.
        more: what else is said: ``member``, ``attempt``, ``reason``, ``due_ms``, ``position``.
    """

    time_ms: int
    event: str
    broker: str
    queue: str
    offset: int | None
    who: str
    more: dict[str, Any]


def offset_id(message: ReceivedMessage) -> str:
    """The broker and the log position of a message, which name it for ever: ``broker-a:40213``."""
    return f"{message.queue.broker}:{message.position}"


def message(id: str) -> Task[ReceivedMessage]:
    """The message of an offset id, ``BROKER:POSITION``: an offset of its queue is another number. Raises
    ``OffsetOutOfRange`` where none is stored there, or not any more."""
    check_text("an offset id", id)
    broker, colon, position = id.rpartition(":")
    if not colon or not broker or not position.isascii() or not position.isdigit():
        raise InvalidRequest(f"{id!r} is no offset id", hint="it is BROKER:POSITION, as broker-a:40213")
    check_integer("a log position", int(position))
    route = yield from broker_named(broker, NoRoute)
    page: Pulled = yield Ask(route.address, ReadAt(int(position)), Pulled)
    return found_in(page, route.broker)[0]


def browse(queue: MessageQueue, at: Place, count: int = 20) -> Task[tuple[list[ReceivedMessage], int, Bounds]]:
    """Up to ``count`` messages of a queue from a place on (an offset, ``"earliest"``, ``"latest"``: the last ones, or a
    ``datetime``), the offset behind them, and the bounds of the queue. No group moves. An offset outside the queue
    becomes the nearest in it. Raises ``QueueNotFound`` and ``NoRoute``."""
    check_integer("count", count)
    route = yield from broker_named(queue.broker, NoRoute)
    found: BoundsReply = yield Ask(route.address, QueryBounds((queue.name,)), BoundsReply)
    bounds = found.bounds[0]
    if isinstance(at, datetime):
        sought: OffsetReply = yield Ask(route.address, SeekTime(queue.name, time_ms("at", at)), OffsetReply)
        at = sought.offset
    elif at == "latest":
        at = bounds.end - count
    elif at == "earliest":
        at = bounds.min
    check_integer("an offset", at)
    offset = min(max(int(at), bounds.min), bounds.end)
    messages: list[ReceivedMessage] = []
    while offset < bounds.end and len(messages) < count:
        wanted = Pull(queue.name, offset, BROWSED_BYTES, count - len(messages))
        page: Pulled = yield Ask(route.address, wanted, Pulled)
        if page.next <= offset:
            break
        messages += found_in(page, route.broker)
        offset = page.next
    return messages, offset, bounds


def trace(id: str) -> Task[list[TraceRow]]:
    """The trace of a message, in the order of events; empty if it was not traced. ``id``: its unique id, or its offset
    id if it has none. ``change_topic(trace_every=)`` turns tracing on for a topic."""
    check_text("a message's id", id)
    found: list[TraceRow] = []
    for route in (yield ALL_BROKERS):
        request = FindByKey(TRACE_TOPIC, id)
        while True:
            try:
                page: Pulled = yield Ask(route.address, request, Pulled)
            except TopicNotFound:
                break  # nothing was ever traced there
            for one in found_in(page, route.broker):
                found += _rows(json.loads(one.body))
            if not page.next:
                break
            request = replace(request, before=page.next)
    return sorted(found, key=lambda one: (one.time_ms, _ORDER.index(one.event) if one.event in _ORDER else 9))


_ORDER = ("produced", "stored", "delivered", "retried", "dead", "acknowledged")
_OWN = ("event", "id", "time_ms", "broker", "queue", "offset", "reader", "sender", "born_ms")


def _rows(row: dict[str, Any]) -> Iterator[TraceRow]:
    more = {name: value for name, value in row.items() if name not in _OWN}
    if row.get("born_ms"):
        sender = row.get("sender", "") or row["id"].partition("-")[0]
        yield TraceRow(row["born_ms"], "produced", "", "", None, sender, {})
    who = row.get("reader", "")
    yield TraceRow(row["time_ms"], row["event"], row["broker"], row.get("queue", ""), row.get("offset"), who, more)
