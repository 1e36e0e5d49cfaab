"""Reads messages in flight again from the log, by their saved places (``Sent``).

Reading begins at the saved offsets. A message is recognised by its log position, because damage may have moved it to a
later offset (docs/decisions/0007). One that retention has removed is found if it is still the retained message of its
topic. Nothing here knows sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.brokers import Broker
from gateway.messages.envelope import Arrival, Origin, arrivals
from gateway.sessions.session_state import Sent
from penstock.errors import InvalidMessage, OffsetOutOfRange, PenstockError
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.protocol.requests.messages import BoundsReply, Pull, Pulled, QueryBounds
from penstock.protocol.requests.request import Result
from topicmap.names import plain_filter
from topicmap.queues import filter_queue

_PULL_BYTES: Final = 1 << 20
_PULL_COUNT: Final = 1024

OnFound = Callable[[Sent, Arrival], None]
OnRead = Callable[["PenstockError | None"], None]


class Rereading:
    """Reading of some messages again, all of them of brokers that are known. ``on_found`` gets each message,
    ``on_read`` is called once at the end, with the error if some may be missing. ``sparing``: messages between them are
    not read along, though that takes more requests."""

    def __init__(
        self, brokers: Mapping[str, Broker], on_found: OnFound, on_read: OnRead, *, sparing: bool = False
    ) -> None:
        self._brokers = brokers
        self._sparing = sparing
        self._on_found = on_found
        self._on_read = on_read
        self._left = 1
        self._error: PenstockError | None = None

    def begin(self, wanted: Iterable[Sent]) -> None:
        """Asks the brokers for all of them."""
        queues: dict[tuple[str, str, str], list[Sent]] = {}
        for sent in wanted:
            queues.setdefault((sent.filter, sent.queue, sent.broker), []).append(sent)
        for (filter, queue, name), rows in queues.items():
            self._left += 1
            origin = Origin(self._brokers[name], filter, queue or filter_queue(plain_filter(filter)))
            rows.sort(key=lambda sent: (sent.position, sent.offset))
            self._pull(origin, rows, rows[0].offset)
        self._answered()

    def _pull(self, origin: Origin, rows: Sequence[Sent], offset: int) -> None:
        request = Pull(origin.queue, offset, _PULL_BYTES, len(rows) if self._sparing else _PULL_COUNT)
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
                self._on_found(sent, arrival)
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
                self._on_found(sent, found)
        self._has(result)

    def _has(self, result: Result) -> None:
        if isinstance(result, PenstockError) and result.retryable:
            self._error = result
        self._answered()

    def _answered(self) -> None:
        self._left -= 1
        if not self._left:
            self._on_read(self._error)


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
