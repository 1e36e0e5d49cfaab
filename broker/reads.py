"""Answers of a node that does not lead: reads of its own copy, up to the committed position.

They may be old, never wrong: a copy may lack messages that its leader has. An offset beyond its end waits; an unknown
topic or queue is left to the leader. Nothing here appends: a read here creates no topic and stores no trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.figures import Figures
from broker.filters.requests import FilterRequests
from broker.groups.requests import UNCOMMITTED
from broker.kernel.handler import Handler, handlers_of
from broker.kernel.outcomes import AfterRound, Now, Outcome, Parked
from broker.messages.acceptance import Acceptance
from broker.messages.requests import WAIT_S_MAX, MessageRequests
from broker.messages.trace import Trace
from broker.producers.repeats import Repeats
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.topics.requests import TopicRequests
from penstock.errors import OffsetOutOfRange, PenstockError, QueueNotFound, TopicNotFound
from penstock.protocol.requests.filters import FetchRetained
from penstock.protocol.requests.groups import FetchOffsets, GroupOffsets, QueueOffset
from penstock.protocol.requests.messages import FindByKey, Pull, Pulled, QueryBounds, ReadAt, SeekTime
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.topics import CountTopics, DescribeTopic, ListTopics, TopicDetail

BEHIND_S: Final = 0.5
"""Minimum time for which a pull waits for an offset that this copy does not have yet."""
_PLAIN: Final = (FindByKey, ReadAt, ListTopics, CountTopics, FetchRetained)


class FollowerReads:
    """The reads of one copy.

    Args:
        figures: of the process.
    """

    def __init__(
        self, settings: BrokerSettings, state: BrokerState, store: MessageStore, figures: Figures, now: float
    ) -> None:
        settings = replace(settings, trace_rows_per_s_max=0)
        self._state = state
        self._store = store
        self._topics = TopicRequests(state, store, settings, _not_here)
        trace = Trace(state, self._topics, store, settings, now)
        acceptance = Acceptance(self._topics, state, settings, Repeats(state.producers, store))
        self._messages = MessageRequests(
            store, self._topics, acceptance, settings, figures, state.gateway_epochs, state.identity, trace
        )
        all_handlers = handlers_of((self._topics, self._messages, FilterRequests(state, store, settings, now, trace)))
        self._table: dict[type[Request], Handler] = {
            **{kind: all_handlers[kind] for kind in _PLAIN},
            Pull: self._pull,
            QueryBounds: self._bounds,
            SeekTime: self._seek_time,
            DescribeTopic: self._describe,
            FetchOffsets: self._fetch_offsets,
        }

    def handle(self, request: Request, now: float, now_ms: int) -> Outcome | None:
        """Carries a read out; None for all that is the leader's."""
        handler = self._table.get(type(request))
        try:
            return None if handler is None else handler(request, now, now_ms)
        except (TopicNotFound, QueueNotFound):
            return None
        except PenstockError as error:
            return Now(error.as_result())

    def take_wakers(self) -> list[str]:
        """Queues that gained readable messages since the last call."""
        return self._store.take_readable()

    def _know(self, queue: str) -> None:
        """A queue of a topic that has come with the log has bounds before its first message."""
        topic, _, number = queue.rpartition(":")
        known = self._state.topics.get(topic)
        if known is not None and number.isdecimal() and int(number) < known.queues:
            self._store.ensure_queue(topic, int(number))

    def _pull(self, request: Pull, now: float, now_ms: int) -> Outcome:
        self._know(request.queue)
        try:
            return self._messages.pull(request, now, now_ms)
        except OffsetOutOfRange:
            if not self._is_to_come(request):
                raise
        wait_s = min(max(request.wait_s, BEHIND_S), WAIT_S_MAX)

        def again(last: bool) -> Result | None:
            return self._pull_later(request, now, now_ms, is_last=last)

        return Parked((request.queue,), now + wait_s, again)

    def _is_to_come(self, request: Pull) -> bool:
        return request.offset > self._store.bounds(request.queue).end

    def _pull_later(self, request: Pull, now: float, now_ms: int, *, is_last: bool) -> Result | None:
        """The result of a pull that waits for an offset beyond the end of this copy; None for nothing yet."""
        try:
            if not self._is_to_come(request):
                outcome = self._messages.pull(replace(request, wait_s=0.0), now, now_ms)
                assert isinstance(outcome, Now)
                return outcome.result
            if not is_last:
                return None
            bounds = self._store.bounds(request.queue)
        except PenstockError as error:
            return error.as_result()
        return Pulled(0, request.offset, bounds.min, bounds.end, b"")

    def _bounds(self, request: QueryBounds, now: float, now_ms: int) -> Outcome:
        for queue in request.queues:
            self._know(queue)
        return self._messages.bounds(request, now, now_ms)

    def _seek_time(self, request: SeekTime, now: float, now_ms: int) -> Outcome:
        self._know(request.queue)
        return self._messages.seek_time(request, now, now_ms)

    def _describe(self, request: DescribeTopic, now: float, now_ms: int) -> Outcome:
        known = self._state.topics.get(request.topic)
        for number in range(known.queues if known is not None else 0):
            self._store.ensure_queue(request.topic, number)
        outcome = self._topics.describe(replace(request, create=False), now, now_ms)
        assert isinstance(outcome, Now | AfterRound)
        result = outcome.result
        return Now(replace(result, is_copy=True) if isinstance(result, TopicDetail) else result)

    def _fetch_offsets(self, request: FetchOffsets, now: float, now_ms: int) -> Outcome:
        committed = self._state.offsets.of(request.group)
        rows = [QueueOffset(queue, committed.get(queue, UNCOMMITTED)) for queue in request.queues]
        return Now(GroupOffsets(tuple(rows)))


def _not_here(topic: str) -> None:
    """A topic that changes is the leader's to tell of."""
