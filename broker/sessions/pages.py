"""Requests about all MQTT sessions: their states, their filters, and which have ended.

Only the home can answer. Answers about many sessions come in pages, by generation, so that each fits a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.kernel.handler import handles
from broker.kernel.outcomes import AfterQuorum, Now, Outcome
from broker.sessions import fold as sessions
from broker.sessions.fold import Entry, Sessions
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from penstock.errors import InvalidRequest, TopicNotFound
from penstock.protocol.requests.sessions import (
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
LOOKED_AT_MAX: Final = 20_000
"""Maximum number of client ids that one request compares with a text."""
PAGE_BYTES: Final = 1 << 20
"""A page of sessions, or of their filters, ends with the session that reaches these bytes; one has hardly more."""


class SessionPages:
    """The sessions whose home is this broker."""

    def __init__(self, state: BrokerState, store: MessageStore) -> None:
        self._sessions: Sessions = state.sessions
        self._filters = state.filters
        self._topics = state.topics
        self._store = store

    @handles(ListSessionFilters)
    def list_filters(self, request: ListSessionFilters, now: float, now_ms: int) -> Outcome:
        """A page of the filters that are open here for sessions; a broker that joins opens the same."""
        held: list[SessionFilters] = []

        def take(generation: int) -> int:
            filters = tuple(self._filters.held_by(sessions.holder(generation)))
            if filters:
                held.append(SessionFilters(generation, filters))
            return sum([len(filter.encode()) for filter in filters])

        after = self._page(request.after, request.count_max, take)
        return AfterQuorum(SessionFiltersPage(tuple(held), after), self._store.written)

    @handles(ListSessions)
    def list_all(self, request: ListSessions, now: float, now_ms: int) -> Outcome:
        """The states of sessions, a page of them, or of one."""
        if request.client:
            self._check_home()
            entry = self._sessions.get(request.client)
            return Now(SessionsPage(() if entry is None else (_row(request.client, entry),), 0))
        rows: list[SessionRow] = []

        def take(generation: int) -> int:
            client = self._sessions.client_of(generation)
            entry = self._sessions.get(client)
            assert entry is not None
            rows.append(_row(client, entry))
            return entry.size

        after = self._page(request.after, request.count_max, take, request.contains)
        return Now(SessionsPage(tuple(rows), after))

    def _page(self, after: int, count_max: int, take: Callable[[int], int], contains: str = "") -> int:
        """Has ``take`` take in the sessions behind ``after``, one by one, until they are a page; it says how many bytes
        each is. With ``contains``, those of the next ``LOOKED_AT_MAX`` whose client ids have this text. Gives what
        continues, 0 at the end."""
        self._check_home()
        if count_max < 1:
            raise InvalidRequest("count_max is at least 1")
        count = min(count_max, COUNT_MAX)
        looked_at_max = LOOKED_AT_MAX if contains else count
        live = self._sessions.live_after(after, looked_at_max)
        taken = size = 0
        for one in live:
            if contains and contains not in self._sessions.client_of(one):
                continue
            size += take(one)
            taken += 1
            if (taken >= count or size >= PAGE_BYTES) and one != live[-1]:
                return one
        return live[-1] if len(live) == looked_at_max else 0

    @handles(FindEndedSessions)
    def find_ended(self, request: FindEndedSessions, now: float, now_ms: int) -> Outcome:
        """The ended sessions; answered when that is durable."""
        self._check_home()
        ended = tuple([one for one in request.generations if not self._sessions.stands(one)])
        return AfterQuorum(EndedSessions(ended), self._store.written)

    def _check_home(self) -> None:
        if self._topics.get(HOME_TOPIC) is None:
            raise TopicNotFound(f"{HOME_TOPIC}: sessions are not at home at this broker")


def _row(client: str, entry: Entry) -> SessionRow:
    return SessionRow(
        client,
        entry.generation,
        entry.owner,
        entry.state,
        entry.user,
        entry.gone_ms,
        entry.expiry_s,
        entry.terms,
        entry.flow,
    )
