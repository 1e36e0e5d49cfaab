"""Requests about all MQTT sessions at once: which there are, how they stand, what is open for them, and which are over.

Only their home can say. What is told of many comes in pages, by incarnation, so that each fits a frame.
"""

from __future__ import annotations

from typing import Final

from broker.folds import sessions
from broker.folds.sessions import Entry, Sessions
from broker.folds.state import BrokerState
from broker.outcomes import AfterSync, Now, Outcome
from broker.store.message_store import MessageStore
from penstock.errors import InvalidRequest, TopicNotFound
from penstock.requests.sessions import (
    HOME_TOPIC,
    EndedSessions,
    FindEndedSessions,
    ListSessionFilters,
    ListSessions,
    SessionFilters,
    SessionFiltersPage,
    SessionRow,
    SessionsPage,
)

COUNT_MAX: Final = 1000
PAGE_BYTES: Final = 1 << 20
"""A page of sessions, or of their filters, ends with the session that reaches so much; one has hardly more."""


class SessionPages:
    """The sessions whose home is this broker."""

    def __init__(self, state: BrokerState, store: MessageStore) -> None:
        self._sessions: Sessions = state.sessions
        self._filters = state.filters
        self._topics = state.topics
        self._store = store

    def list_filters(self, request: ListSessionFilters, now: float, now_ms: int) -> Outcome:
        """What is open here for sessions, a page of a size that fits; a broker that joins opens the same."""
        self._check_home()
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        count = min(request.count_max, COUNT_MAX)
        live = self._sessions.live_after(request.after, count)
        after = live[-1] if len(live) == count else 0
        held: list[SessionFilters] = []
        size = 0
        for one in live:
            filters = tuple(self._filters.held_by(sessions.holder(one)))
            size += sum([len(filter.encode()) for filter in filters])
            if filters:
                held.append(SessionFilters(one, filters))
            if size >= PAGE_BYTES and one != live[-1]:
                after = one
                break
        page = SessionFiltersPage(tuple(held), after)
        return AfterSync(page, self._store.written)

    def list_all(self, request: ListSessions, now: float, now_ms: int) -> Outcome:
        """How sessions stand, a page of a size that fits, or one of them."""
        self._check_home()
        if request.count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        if request.client:
            entry = self._sessions.get(request.client)
            return Now(SessionsPage(() if entry is None else (_row(request.client, entry),), 0))
        count = min(request.count_max, COUNT_MAX)
        live = self._sessions.live_after(request.after, count)
        after = live[-1] if len(live) == count else 0
        rows: list[SessionRow] = []
        size = 0
        for one in live:
            client = self._sessions.client_of(one)
            entry = self._sessions.get(client)
            assert entry is not None
            rows.append(_row(client, entry))
            size += entry.size
            if size >= PAGE_BYTES and one != live[-1]:
                after = one
                break
        return Now(SessionsPage(tuple(rows), after))

    def find_ended(self, request: FindEndedSessions, now: float, now_ms: int) -> Outcome:
        """Which sessions are over; told when that is durable."""
        self._check_home()
        ended = tuple([one for one in request.incarnations if not self._sessions.lives(one)])
        return AfterSync(EndedSessions(ended), self._store.written)

    def _check_home(self) -> None:
        if self._topics.get(HOME_TOPIC) is None:
            raise TopicNotFound(f"{HOME_TOPIC}: sessions are not at home at this broker")


def _row(client: str, entry: Entry) -> SessionRow:
    return SessionRow(
        client,
        entry.incarnation,
        entry.owner,
        entry.state,
        entry.user,
        entry.gone_ms,
        entry.expiry_s,
        entry.terms,
        entry.flow,
    )
