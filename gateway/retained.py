"""Retained messages for a new subscription: fetched page by page, sent before the first live message.

The broker's retained values are fetched after the filter was opened at some log position. A value stored after that
position comes live as well, so it is left out here; one stored before it cannot. The subscriber therefore gets, per
topic, the value that precedes its first live message, once, and in that order (its cursor is *held* until the last
page is sent). What its publisher may no longer publish is not sent. At most one page per subscription is in memory, and
no page is fetched while the last one is not sent. Few pages are asked for at a time, and each session gets its turn
(``_Turns``): whoever subscribes to a thousand filters over a million names keeps nobody else waiting. A session that
outlives its connection is owed what it has not been sent: with it is saved after which name to go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.brokers import Broker
from gateway.delivery import Variant, is_expired
from gateway.envelope import Arrival, Origin, arrivals
from gateway.login.auth import Identity
from gateway.session import Cursor, Session
from gateway.session_state import Owed
from penstock.errors import InvalidMessage, PenstockError
from penstock.requests.filters import FetchRetained, RetainedPage
from penstock.requests.request import Result
from penstock.world import Clock
from topicmap.names import is_reserved

PAGE: Final = 64
FETCHES_MAX: Final = 4
"""So many pages are under way from one broker: within one of a gateway's rounds it looks for no more at once."""


class _Turns:
    """Who waits for a page of one broker: its sessions in turn, of each its subscriptions in their order."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Session, deque[tuple[Cursor, _Fetch]]] = {}
        self.under_way = 0

    def add(self, cursor: Cursor, fetch: _Fetch) -> None:
        self.waiting.setdefault(cursor.session, deque()).append((cursor, fetch))

    def next(self) -> tuple[Cursor, _Fetch]:
        """Whose turn it is; its session comes behind all others then."""
        session = next(iter(self.waiting))
        mine = self.waiting.pop(session)
        first = mine.popleft()
        if mine:
            self.waiting[session] = mine
        return first


class _Fetch:
    """How far one subscription's retained messages have come."""

    __slots__ = ("after", "before", "is_fetching", "is_last", "page", "reached")

    def __init__(self, before: int, after: str) -> None:
        self.before = before
        self.after = after
        self.reached = after
        self.page: list[Arrival] = []
        self.is_fetching = False
        self.is_last = False

    def owed(self) -> Owed | None:
        """What is not sent yet."""
        return Owed(self.before, self.reached, None, "")


class Retained:
    """The retained messages that are on their way to subscribers."""

    def __init__(
        self,
        clock: Clock,
        pump_later: Callable[[Session], None],
        wake: Callable[[], None],
        send: Callable[[Sequence[Cursor], Arrival, Variant, int], bool],
    ) -> None:
        """``send`` sends a message in a form, false if there is no room for it (``Sending.as_variant``)."""
        self._clock = clock
        self._wake = wake
        self._send_one = send
        self._pump_later = pump_later
        self._turns: dict[Broker, _Turns] = {}
        self._fetches: dict[Cursor, _Fetch] = {}
        self._failed: list[Session] = []
        self.may_publish: Callable[[Identity, str], bool] = _anybody

    def __contains__(self, cursor: Cursor) -> bool:
        return cursor in self._fetches

    def begin(self, cursor: Cursor, before: int, after: str = "") -> None:
        """Holds a cursor until the retained messages stored before a log position are sent, those with names behind
        ``after``."""
        fetch = self._fetches[cursor] = _Fetch(before, after)
        cursor.held, cursor.owed = True, cursor.owed or fetch.owed

    def resume(self, cursor: Cursor) -> bool:
        """Goes on where an earlier connection of the session ended. False if nothing is owed."""
        owed = cursor.take_owed(is_history=False)
        if owed is not None:
            self.begin(cursor, owed.before, owed.after)
        return owed is not None

    def stop(self, cursor: Cursor) -> None:
        cursor.held, cursor.owed = False, None
        self._fetches.pop(cursor, None)

    def pump(self, cursor: Cursor) -> bool:
        """Sends what there is room for, and sees that more comes. True when all is sent and the cursor held no more."""
        fetch = self._fetches[cursor]
        cursor.held, cursor.owed = True, fetch.owed  # a history that went first has let go of the cursor
        if not self._send(cursor, fetch):
            return False
        if fetch.is_last:
            self.stop(cursor)
            return True
        if not fetch.is_fetching:
            fetch.is_fetching = True
            self._turns.setdefault(cursor.feed.broker, _Turns()).add(cursor, fetch)
            self._wake()
        return False

    def take_turns(self) -> None:
        """Asks for the next pages; to be called once per flush, so that looking for them leaves time for everybody
        else."""
        for broker, turns in self._turns.items():
            left = FETCHES_MAX - turns.under_way  # also of those that are answered at once
            while turns.waiting and left:
                cursor, fetch = turns.next()
                if self._fetches.get(cursor) is fetch:
                    left -= 1
                    turns.under_way += 1
                    request = FetchRetained(cursor.subscription.filter, fetch.after, PAGE)
                    broker.submit(request, partial(self._fetched, cursor, fetch, turns))
            if turns.waiting and turns.under_way < FETCHES_MAX:
                self._wake()

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

    def _fetched(self, cursor: Cursor, fetch: _Fetch, turns: _Turns, result: Result) -> None:
        turns.under_way -= 1
        if turns.waiting:
            self._wake()
        fetch.is_fetching = False
        if self._fetches.get(cursor) is not fetch:
            return
        if isinstance(result, PenstockError):
            self._failed.append(cursor.session)
            return
        assert isinstance(result, RetainedPage)
        try:
            page = arrivals(result.count, result.body, cursor.feed)
        except InvalidMessage:
            page = []
        broker, filter = cursor.feed.broker, cursor.subscription.filter
        fetch.page = [
            arrival.in_its_topic(Origin(broker, filter, arrival.queue))
            for arrival in page
            if arrival.position < fetch.before
        ]
        fetch.after = result.after
        fetch.is_last = not result.after
        self._pump_later(cursor.session)

    def _is_allowed(self, arrival: Arrival) -> bool:
        """Whether its publisher has not lost the right to publish it. What no client can publish came from a native
        producer or a gateway."""
        if not arrival.sender or is_reserved(arrival.name):
            return True
        return self.may_publish(Identity(arrival.sender.decode("utf-8", "replace"), arrival.user), arrival.name)

    def retry(self) -> None:
        """Asks again where a broker did not answer."""
        failed, self._failed = self._failed, []
        for session in failed:
            self._pump_later(session)


def _anybody(identity: Identity, name: str) -> bool:
    """Nobody has said who may publish what."""
    return True
