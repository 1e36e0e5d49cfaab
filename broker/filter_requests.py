"""Requests about MQTT filters and retained messages.

Opening a filter is answered at once, before its record is synced. That is sound: the log is a prefix after a crash,
so if the record is lost, so is every message after it, and the gateway opens its filters again when it comes back.
"""

from __future__ import annotations

from typing import Final

from broker.folds import filters
from broker.folds.state import BrokerState, fact_record
from broker.outcomes import Now, Outcome
from broker.settings import BrokerSettings
from broker.store.message_store import MessageStore
from penstock.errors import Busy, InvalidRequest, InvalidTopic
from penstock.message import ENTRY, OFFSETS, OFFSETS_AT
from penstock.requests import (
    CloseFilters,
    Done,
    FetchRetained,
    KeepFilters,
    OpenedFilter,
    OpenedFilters,
    OpenFilters,
    RetainedPage,
)
from topicmap.names import InvalidName, check_filter
from topicmap.queues import filter_queue

LOOKED_AT_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 1 << 20
_POSITION_AT: Final = 24 + OFFSETS_AT


class FilterRequests:
    """Filters and retained messages of one broker; keeps the owners' leases, which are not durable."""

    def __init__(self, state: BrokerState, store: MessageStore, settings: BrokerSettings, now: float) -> None:
        self._filters = state.filters
        self._retained = state.retained
        self._store = store
        self._settings = settings
        self._leases = {owner: now + settings.owner_lease_s for owner in self._filters.owners}

    def open(self, request: OpenFilters, now: float, now_ms: int) -> Outcome:
        """Opens light queues for an owner."""
        for filter in request.filters:
            try:
                check_filter(filter)
            except InvalidName as error:
                raise InvalidTopic(f"{filter!r}: {error}") from None
        if len(self._filters) + len(request.filters) > self._settings.filters_max:
            raise Busy(f"{len(self._filters)} filters are open: the limit is reached")
        wanted = [filter for filter in request.filters if not self._filters.holds(request.owner, filter)]
        if wanted:
            fact = self._filters.fact(filters.OPEN, request.owner, wanted)
            self._store.append([fact_record(filters.TOPIC, fact)], now_ms)
        self._renew(request.owner, now, self._settings.owner_lease_s)
        position = self._store.written
        opened = []
        for filter in request.filters:
            queue = filter_queue(filter)
            opened.append(OpenedFilter(filter, queue, self._store.next_offset(queue), position))
        return Now(OpenedFilters(tuple(opened)))

    def close(self, request: CloseFilters, now: float, now_ms: int) -> Outcome:
        """An owner needs these filters no longer."""
        held = [filter for filter in request.filters if self._filters.holds(request.owner, filter)]
        self._close(request.owner, held, now_ms)
        return Now(Done())

    def _close(self, owner: str, held: list[str], now_ms: int) -> None:
        if held:
            self._store.append([fact_record(filters.TOPIC, self._filters.fact(filters.CLOSE, owner, held))], now_ms)

    def keep(self, request: KeepFilters, now: float, now_ms: int) -> Outcome:
        """An owner lives."""
        if not 0 < request.lease_s <= 86_400:
            raise InvalidRequest("a lease has more than 0 and at most 86,400 seconds")
        self._renew(request.owner, now, request.lease_s)
        return Now(Done())

    def _renew(self, owner: str, now: float, lease_s: float) -> None:
        self._leases[owner] = now + lease_s

    def expire(self, now: float, now_ms: int) -> None:
        """Closes the filters of owners that have been silent for too long."""
        for owner in [owner for owner, deadline in self._leases.items() if deadline <= now]:
            self._close(owner, self._filters.held_by(owner), now_ms)
            del self._leases[owner]

    def fetch_retained(self, request: FetchRetained, now: float, now_ms: int) -> Outcome:
        """A page of retained messages."""
        try:
            check_filter(request.filter)
        except InvalidName as error:
            raise InvalidTopic(f"{request.filter!r}: {error}") from None
        rows: list[bytes] = []
        frames: list[bytes] = []
        size, after = 0, ""
        for name, frame in self._retained.matching(request.filter, request.after, LOOKED_AT_MAX):
            if frame is None:
                after = name
                break
            rows.append(ENTRY.pack(0, OFFSETS.unpack_from(frame, _POSITION_AT)[1], len(frame), 0))
            frames.append(frame)
            size += len(frame)
            if len(rows) >= request.count_max or size >= PAGE_BYTES_MAX:
                after = name
                break
        return Now(RetainedPage(len(rows), after, b"".join(rows + frames)))
