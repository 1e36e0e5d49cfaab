"""Requests of the home of sessions to this gateway: sessions that other gateways want, and questions of operators.

A watch is always open at the home; its answer brings the requests. Counts are answered together, large answers one by
one. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.sessions.session import Session
from gateway.sessions.session_state import encode_terms
from gateway.sessions.store import PART_BYTES_MAX, SessionStore
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.sessions import (
    SessionCall,
    SessionCalls,
    SessionQuestion,
    SessionTerms,
    TellSubscriptions,
    WatchSessions,
)

WATCH_S: Final = 30.0


class SessionWatch:
    """A gateway's watch at the home of sessions. ``on_call`` gives a session up, ``on_asked`` answers a question, with
    ``None`` where the client is not here."""

    def __init__(
        self,
        home: SessionStore,
        on_call: Callable[[SessionCall], None],
        on_asked: Callable[[SessionQuestion], SessionTerms | None],
        wake: Callable[[], None],
    ) -> None:
        self._home = home
        self._on_call = on_call
        self._on_asked = on_asked
        self._wake = wake
        self._is_watching = False

    def tick(self) -> None:
        """Keeps the watch open."""
        if not self._is_watching:
            self._watch()

    def _watch(self) -> None:
        if self._home.broker is not None:
            self._is_watching = True
            self._home.broker.submit(WatchSessions(self._home.owner, WATCH_S), self.answered)

    def answered(self, result: Result) -> None:
        """The watch has brought something, or its time is over."""
        self._is_watching = False
        if isinstance(result, SessionCalls):
            for call in result.calls:
                self._on_call(call)
            self._tell(result.asked)
            if result.calls or result.asked:
                self._watch()
            self._wake()

    def _tell(self, asked: Sequence[SessionQuestion]) -> None:
        told = [found for question in asked if (found := self._on_asked(question)) is not None]
        large = [one for one in told if one.terms or one.packets]
        for part in ([one for one in told if not one.terms and not one.packets], *[[one] for one in large]):
            if part and self._home.broker is not None:
                self._home.broker.submit(TellSubscriptions(self._home.owner, tuple(part)), _is_told)


def _is_told(result: Result) -> None:
    """Ignores it: the caller asks again."""


def terms_of(session: Session, question: SessionQuestion) -> SessionTerms:
    """The subscriptions of a client here."""
    terms = encode_terms(session.subscriptions.values()) if question.wants_terms else b""
    shown = terms if len(terms) <= PART_BYTES_MAX else b""
    return SessionTerms(question.client, len(session.subscriptions), question.wants_terms, shown)
