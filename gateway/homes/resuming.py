"""A saved session comes back to life: its open exchanges are fetched before its client is answered.

Inbound QoS 2 ids come from the brokers that stored the messages. Messages on their way to the client are read again
from the log, from the offsets on that were saved with their packet ids, so that they can be sent once more under the
same ids and in the same order (MQTT-4.4.0-1, 4.6.0-1). Each is known by its log position, for damage may have moved it
to a later offset (docs/decisions/0007). One that retention has passed goes again if it is still the retained
message of its topic, else it is given up. One at a broker that is not known here, because it is away, waits for a later
connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.brokers import Brokers
from gateway.homes.exchanges import ExchangeIds
from gateway.messages.delivery import Variant, blob
from gateway.messages.envelope import Arrival, Origin, arrivals
from gateway.sessions.session import Session
from gateway.sessions.session_state import Flow, Sent
from penstock.errors import InvalidMessage, OffsetOutOfRange, PenstockError
from penstock.requests.filters import FetchRetained, RetainedPage
from penstock.requests.messages import BoundsReply, Pull, Pulled, QueryBounds
from penstock.requests.request import Result
from topicmap.names import plain_filter
from topicmap.queues import filter_queue

_PULL_BYTES: int = 1 << 20
_PULL_COUNT: int = 1024

ABSENT_MAX: Final = 16_384
"""So many packet ids of a session at the most are kept for messages of brokers that are not known."""

OnResumed = Callable[["PenstockError | None"], None]


class Resuming:
    """One session on its way back. ``on_resumed`` is told when its exchanges stand, or why they cannot."""

    def __init__(self, session: Session, flow: Flow, brokers: Brokers, is_v5: bool, now_ms: int) -> None:
        self._session = session
        self._flow = flow
        self._brokers = {broker.name: broker for broker in brokers.known}
        self._is_v5 = is_v5
        self._now_ms = now_ms
        self._found: dict[int, Arrival] = {}
        self._left = 1
        self._error: PenstockError | None = None
        self._on_resumed: OnResumed = lambda error: None

    def begin(self, exchanges: ExchangeIds, on_resumed: OnResumed) -> None:
        """Asks the brokers for all of it."""
        session, self._on_resumed = self._session, on_resumed
        assert session.lasting is not None
        self._left += 1
        exchanges.fetch(session.client_id, session.lasting.incarnation, session.epoch, self._has_ids)
        queues: dict[tuple[str, str, str], list[Sent]] = {}
        for sent in self._flow.sent:
            queues.setdefault((sent.filter, sent.queue, sent.broker), []).append(sent)
        for (filter, queue, name), rows in queues.items():
            broker = self._brokers.get(name)
            if broker is None:
                room = ABSENT_MAX - len(session.lasting.absent)
                session.lasting.absent.update({sent.packet_id: sent for sent in rows[:room]})
            else:
                self._left += 1
                origin = Origin(broker, filter, queue or filter_queue(plain_filter(filter)))
                rows.sort(key=lambda sent: (sent.position, sent.offset))
                self._pull(origin, rows, rows[0].offset)
        self._answered()

    def _has_ids(self, ids: list[int] | PenstockError) -> None:
        if isinstance(ids, PenstockError):
            self._error = ids
        else:
            self._session.inherit_incoming(ids)
        self._answered()

    # ------------------------------------------------------------ messages on their way

    def _pull(self, origin: Origin, rows: Sequence[Sent], offset: int) -> None:
        request = Pull(origin.queue, offset, _PULL_BYTES, _PULL_COUNT)
        origin.broker.submit(request, partial(self._pulled, origin, rows))

    def _pulled(self, origin: Origin, rows: Sequence[Sent], result: Result) -> None:
        if isinstance(result, OffsetOutOfRange):  # retention has passed the first of them
            origin.broker.submit(QueryBounds((origin.queue,)), partial(self._bounded, origin, rows))
            return
        got = _decoded(result, origin)
        by_position = {arrival.position: arrival for arrival in got}
        by_offset = {arrival.offset: arrival for arrival in got}
        later = []
        for sent in rows:
            arrival = by_offset.get(sent.offset) if sent.position < 0 else by_position.get(sent.position)
            if got and _is_behind(sent, got[-1]):
                later.append(sent)
            elif arrival is not None:
                self._found[sent.packet_id] = arrival
            elif not isinstance(result, PenstockError):
                self._look_among_retained(origin, sent)
        if later:
            self._pull(origin, later, max(later[0].offset, got[-1].offset + 1))
        else:
            self._has(result)

    def _bounded(self, origin: Origin, rows: Sequence[Sent], result: Result) -> None:
        if isinstance(result, BoundsReply) and rows[0].offset <= result.bounds[0].end:
            self._pull(origin, rows, max(result.bounds[0].min, rows[0].offset))
            return  # else it is another log, and has none of them
        for sent in rows:
            self._look_among_retained(origin, sent)
        self._has(result)

    def _look_among_retained(self, origin: Origin, sent: Sent) -> None:
        if sent.topic:
            self._left += 1
            origin.broker.submit(FetchRetained(sent.topic, "", 1), partial(self._has_retained, origin, sent))

    def _has_retained(self, origin: Origin, sent: Sent, result: Result) -> None:
        for arrival in _decoded(result, origin):
            found = arrival.in_its_topic()
            if found.offset == sent.offset and arrival.queue == sent.queue:
                self._found[sent.packet_id] = found
        self._has(result)

    def _has(self, result: Result) -> None:
        if isinstance(result, PenstockError) and result.retryable:
            self._error = result
        self._answered()

    # ------------------------------------------------------------ the end

    def _answered(self) -> None:
        self._left -= 1
        if self._left:
            return
        session = self._session
        for sent in self._flow.sent:
            arrival = self._found.get(sent.packet_id)
            if arrival is not None:
                variant = Variant(self._is_v5, sent.qos, sent.retain, sent.identifiers, sent.shows_place)
                made = session.in_flight[sent.packet_id] = blob(arrival, variant, self._now_ms)
                session.in_flight_bytes += made.weight
        session.releasing = dict.fromkeys(self._flow.releasing)
        session.next_id = self._flow.next_id
        self._on_resumed(self._error)


def _is_behind(sent: Sent, last: Arrival) -> bool:
    """Whether a message on its way comes behind this one. Older gateways have saved no positions."""
    return sent.position > last.position if sent.position >= 0 else sent.offset > last.offset


def _decoded(result: Result, origin: Origin) -> list[Arrival]:
    if not isinstance(result, Pulled | RetainedPage):
        return []
    try:
        return arrivals(result.count, result.body, origin)
    except InvalidMessage:
        return []
