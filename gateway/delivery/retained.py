"""Retained messages for a new subscription: fetched page by page, sent before the first live message.

They are fetched after the filter was opened at a log position. A value that was stored after that position comes live,
so it is left out here. So a subscriber gets, per topic, the value before its first live message, once and in that
order; its cursor is *held* until the last page is sent. A value that its publisher may no longer publish is not sent.

At most one page per subscription is in memory, and the next is fetched when it is sent and its turn comes
(``gateway/delivery/lookups.py``). For a session that outlives its connection, the name to continue after is saved with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.delivery.lookups import LookupTurns
from gateway.login.auth import Identity
from gateway.messages.envelope import Arrival, arrivals
from gateway.messages.outgoing import Variant, is_expired
from gateway.net.rounds import Rounds
from gateway.sessions.session import Cursor
from gateway.sessions.session_state import Owed
from penstock.errors import InvalidMessage, PenstockError
from penstock.protocol.requests.filters import FetchRetained, RetainedPage
from penstock.protocol.requests.request import Result
from penstock.world import Clock
from topicmap.names import is_reserved

PAGE: Final = 64
WORK: Final = 128
"""For a page the broker looks at some hundred names, and more of each message is to be judged than of history."""


class _Fetch:
    """How far one subscription's retained messages have come."""

    __slots__ = ("after", "before", "is_last", "page", "reached", "waits")

    def __init__(self, before: int, after: str) -> None:
        self.before = before
        self.after = after
        self.reached = after
        self.page: list[Arrival] = []
        self.is_last = False
        self.waits = False

    def owed(self) -> Owed | None:
        """The values that are not sent yet, by the name to continue after."""
        return Owed(self.before, self.reached, None, "")


class Retained:
    """The retained messages that are on their way to subscribers."""

    def __init__(
        self,
        clock: Clock,
        go_on: Callable[[Cursor], None],
        rounds: Rounds,
        send: Callable[[Sequence[Cursor], Arrival, Variant, int], bool],
        fail: Callable[[Cursor], None],
        may_publish: Callable[[Identity, str], bool],
    ) -> None:
        """``send`` sends a message in a form, false if there is no room for it (``Sending.as_variant``). ``go_on``
        leads to ``pump``. ``fail``: that of ``LookupTurns``."""
        self._clock = clock
        self._send_one = send
        self._fetches: dict[Cursor, _Fetch] = {}
        self.turns = LookupTurns(self._fetches, go_on, rounds, fail)
        self._may_publish = may_publish

    def __contains__(self, cursor: Cursor) -> bool:
        return cursor in self._fetches

    def begin(self, cursor: Cursor, before: int, after: str = "") -> None:
        """Holds a cursor until the retained messages stored before a log position are sent, those with names behind
        ``after``."""
        fetch = self._fetches[cursor] = _Fetch(before, after)
        cursor.past = cursor.past or fetch

    def resume(self, cursor: Cursor) -> bool:
        """Goes on where an earlier connection of the session ended. False if nothing is owed."""
        owed = cursor.left_owed(is_history=False, take=True)
        if owed is not None:
            self.begin(cursor, owed.before, owed.after)
        return owed is not None

    def stop(self, cursor: Cursor) -> None:
        cursor.past = None
        self._fetches.pop(cursor, None)

    def pump(self, cursor: Cursor) -> bool:
        """Sends what there is room for, and sees that more comes. True when all is sent and the cursor held no more."""
        fetch = self._fetches[cursor]
        cursor.past = fetch  # a history that went first has let go of the cursor
        if not self._send(cursor, fetch):
            return False
        if fetch.is_last:
            self.stop(cursor)
            return True
        if not fetch.waits and (cursor.session.is_worth_reading or not cursor.subscription.qos):
            fetch.waits = True
            request = FetchRetained(cursor.subscription.filter, fetch.after, PAGE)
            self.turns.ask(cursor, fetch, request, WORK, partial(self._fetched, cursor, fetch))
        return False

    def _send(self, cursor: Cursor, fetch: _Fetch) -> bool:
        session, subscription = cursor.session, cursor.subscription
        device = session.device
        assert device is not None
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        place = subscription.shows_place
        now_ms = self._clock.wall_ms()
        for sent, arrival in enumerate(fetch.page):
            if is_expired(arrival, now_ms) or (subscription.no_local and arrival.sender == session.client_id_bytes):
                continue
            if not self._is_allowed(arrival):
                continue
            variant = Variant(device.is_v5, min(arrival.qos, subscription.qos), True, identifiers, place)
            if session.is_full or not self._send_one((cursor,), arrival, variant, now_ms):
                fetch.reached = fetch.page[sent - 1].name if sent else fetch.reached
                del fetch.page[:sent]
                return False
        fetch.page, fetch.reached = [], fetch.after
        return True

    def _fetched(self, cursor: Cursor, fetch: _Fetch, result: Result) -> None:
        fetch.waits = False
        if isinstance(result, PenstockError):
            self.turns.failed(cursor)
            return
        assert isinstance(result, RetainedPage)
        try:
            page = arrivals(result.count, result.body, cursor.feed)
        except InvalidMessage:
            page = []
        fetch.page = [arrival.in_its_topic() for arrival in page if arrival.position < fetch.before]
        fetch.after = result.after
        fetch.is_last = not result.after
        self.turns.ready(cursor)

    def _is_allowed(self, arrival: Arrival) -> bool:
        """Whether its publisher has not lost the right to publish it. What no client can publish came from a native
        producer or a gateway."""
        if not arrival.sender or is_reserved(arrival.name):
            return True
        return self._may_publish(Identity(arrival.sender.decode("utf-8", "replace"), arrival.user), arrival.name)
