"""The light queues that this gateway holds open at the brokers: opened with the first subscription to a filter, kept by
a heartbeat, closed with the last.

Every known broker holds a queue for every filter, because any of them may store a matching message; a broker that
appears later gets all filters then. A subscription stands when all brokers have opened its filter; each answers with
the offset and log position from which it counts. The opens and closes of a round leave as one request each per broker,
closes first, so that a filter that is closed and opened again ends up open.

A filter of a session that outlives this gateway is open in the session's own name too, also at a broker that joined
later (``broker/net/mirror.py``). A session without a place in such a queue begins where it was opened in its name.

Failed requests at a broker are kept. Each tick repeats one; when that is answered, the rest follows. Kept are opens
that a client waits for, and closes of continuing sessions, because no lease ends their filters (at most
``UNHEARD_MAX``). Filters of ended sessions are closed by one request without repetition: their home closes them with
the record of the end, and the other brokers ask the home for ended sessions again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Final, NamedTuple

from gateway.brokers import Broker, Brokers
from gateway.messages.feed import Feed
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from penstock.errors import InternalError, PenstockError, from_wire
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenedFilter, OpenedFilters, OpenFilters
from penstock.protocol.requests.request import Result

FILTERS_PER_REQUEST: Final = 1000
FILTER_BYTES_PER_REQUEST: Final = 1 << 20
CLOSES_MAX: Final = 250
"""Number of filters that one request closes; the others follow a little later. Otherwise all clients would wait when
thousands are cut off at once with all their filters."""
UNHEARD_MAX: Final = 10_000

OnDone = Callable[["PenstockError | None"], None]
"""Told what kept a broker from opening the filter, nothing if all have."""
OnOpened = Callable[["PenstockError | None", dict[Cursor, int]], None]
"""Told that, and from which log position it counts for each cursor."""


def answers(result: Result, filters: Iterable[str]) -> list[OpenedFilter | PenstockError]:
    """The results of filters that a broker was asked to open."""
    error = result if isinstance(result, PenstockError) else InternalError("the broker's answer does not say it")
    by_filter: dict[str, OpenedFilter | PenstockError] = {}
    if isinstance(result, OpenedFilters):
        by_filter |= {one.filter: one for one in result.opened}
        by_filter |= {one.filter: from_wire(one.code, one.message) for one in result.refused}
    return [by_filter.get(filter, error) for filter in filters]


def portions(filters: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The bounds of each request's filters, so that none has too many of them or too many bytes."""
    first = size = 0
    for at, filter in enumerate(filters):
        weight = len(filter.encode("utf-8", "replace"))
        if at - first >= FILTERS_PER_REQUEST or (at > first and size + weight > FILTER_BYTES_PER_REQUEST):
            yield first, at
            first, size = at, 0
        size += weight
    if first < len(filters):
        yield first, len(filters)


class PendingSubscription:
    """A subscription on its way to all brokers. ``left``: the number of missing answers."""

    __slots__ = ("_error", "_on_done", "left")

    def __init__(self, left: int, on_done: OnDone) -> None:
        self.left = left
        self._error: PenstockError | None = None
        self._on_done = on_done

    def answered(self, error: PenstockError | None) -> None:
        """One broker has opened it, or holds it open for the session itself, unless there was an error."""
        self.left -= 1
        self._error = self._error or error
        if self.left == 0:
            self._on_done(self._error)


class PendingCursors(PendingSubscription):
    """One that reads a light queue of its own, and so begins somewhere at each broker."""

    __slots__ = ("_positions", "session", "subscription")

    def __init__(self, session: Session, subscription: Subscription, on_opened: OnOpened) -> None:
        positions: dict[Cursor, int] = {}
        super().__init__(0, lambda error: on_opened(error, positions))
        self.session = session
        self.subscription = subscription
        self._positions = positions

    def opened(self, cursor: Cursor, position: int) -> None:
        """One broker has opened it."""
        self._positions[cursor] = position
        self.answered(None)


class _Hold(NamedTuple):
    """A filter that is opened in its session's name: for a subscription on its way, or for a cursor that begins
    there."""

    filter: str
    opening: PendingCursors | None
    cursor: Cursor | None


class BrokerFilters:
    """The feeds of one broker, by filter, and what the next round asks of it.

    Attributes:
        answers: whether it answered when it was asked last.
        failed, not_held: cursors that have no beginning, because their filter could not be opened for the gateway, or
            for their session.
        unheard: filters of sessions that go on, by holder and filter, which it has not heard that they need no more.
    """

    __slots__ = ("answers", "broker", "closing", "failed", "feeds", "holding", "not_held", "opening", "unheard")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.feeds: dict[str, Feed[Cursor]] = {}
        self.opening: list[tuple[Cursor, PendingCursors | None]] = []
        self.closing: dict[Feed[Cursor], None] = {}
        self.holding: dict[Lasting, list[_Hold]] = {}
        self.answers = True
        self.failed: dict[Cursor, None] = {}
        self.not_held: dict[Cursor, _Hold] = {}
        self.unheard: dict[tuple[str, str], None] = {}

    def heard(self, result: Result) -> None:
        """It was asked something, and this came of it."""
        self.answers = not (isinstance(result, PenstockError) and result.retryable)

    def take_unheard(self) -> dict[str, list[str]]:
        """The requests to repeat, by holder: for all holders if the broker answers, else for the first."""
        first = next(iter(self.unheard), ("", ""))[0]
        taken = self.unheard if self.answers else takewhile(lambda row: row[0] == first, self.unheard)
        by_holder: dict[str, list[str]] = {}
        for holder, filter in list(taken):
            del self.unheard[holder, filter]
            by_holder.setdefault(holder, []).append(filter)
        return by_holder


class FilterLeases:
    """All filters that this gateway holds open. ``owner`` is its name in this epoch: filters of an earlier epoch go as
    their lease ends. ``begun`` takes the place where a cursor begins, ``on_kept`` a broker's answer to
    ``KeepFilters``."""

    def __init__(
        self,
        brokers: Brokers,
        owner: str,
        lease_s: float,
        begun: Callable[[Cursor, int, int], None],
        wake: Callable[[], None],
        on_kept: Callable[[Broker, Result], None],
    ) -> None:
        self._on_kept = on_kept
        self._owner = owner
        self._lease_s = lease_s
        self._begun = begun
        self._wake = wake
        self._shelves: dict[Broker, BrokerFilters] = {}
        self._homeless: list[PendingCursors] = []
        self._awaiting: set[Cursor] = set()  # they begin where their session has the filter open
        self._kept_at = 0.0
        brokers.on_new(self._add_broker)

    def __len__(self) -> int:
        return sum(len(shelf.feeds) for shelf in self._shelves.values())

    def open(self, session: Session, subscription: Subscription, on_opened: OnOpened) -> None:
        """Opens a subscription's filter at every broker; waits for a first broker if there is none."""
        opening = PendingCursors(session, subscription, on_opened)
        if self._shelves:
            self._place(opening)
        else:
            self._homeless.append(opening)
        self._wake()

    def resume(self, session: Session, subscription: Subscription) -> None:
        """A subscription that was saved stands again, at each broker from its own place there."""
        if session.lasting is not None and subscription.qos:
            session.lasting.held[subscription.filter] = None
        for shelf in self._shelves.values():
            cursor = self._cursor(shelf, session, subscription)
            cursor.is_resumed = True
            shelf.opening.append((cursor, None))
        self._wake()

    def open_again(self, cursor: Cursor) -> None:
        """Asks for a new beginning of a cursor whose ``next`` is -1."""
        self._shelves[cursor.feed.broker].opening.append((cursor, None))
        self._wake()

    def let_go(self, lasting: Lasting, filter: str) -> bool:
        """A session that goes on needs a filter no longer. Whether it was open in its name, and is to be closed."""
        if lasting.held.pop(filter, 0) is not None:
            return False
        for shelf in self._shelves.values():
            _cancel(shelf, lasting, (filter,))
        return True

    def close(self, lasting: Lasting, filters: Sequence[str]) -> None:
        """A continuing session is saved without these; its brokers get the request until they have answered."""
        for shelf in self._shelves.values():
            for first, end in portions(filters):
                self._let_go(shelf, lasting.holder(shelf.broker.name), tuple(filters[first:end]))
        self._wake()

    def part(self, lasting: Lasting) -> None:
        """The connection of a session is over: what was to be opened in its name behind a close is not."""
        for shelf in self._shelves.values():
            _cancel(shelf, lasting, lasting.closing)

    def wanted(self, broker: Broker, holder: str, filters: Iterable[str]) -> None:
        """Notes that these are opened in a session's name, alone or as shares: unanswered closes of them are not
        repeated."""
        unheard = self._shelves[broker].unheard
        for filter in filters if unheard else ():
            unheard.pop((holder, filter), None)

    def begin_unheld(self, session: Session, filter: str) -> None:
        """A session has released a filter that it continues with: if it has not begun in its own name yet, it begins
        where the filter is open for this gateway."""
        for cursor in session.overlap.cursors:
            if cursor.subscription.filter == filter and cursor in self._awaiting:
                self._awaiting.remove(cursor)
                shelf = self._shelves[cursor.feed.broker]
                shelf.not_held.pop(cursor, None)
                shelf.failed.pop(cursor, None)
                self.open_again(cursor)

    def _let_go(self, shelf: BrokerFilters, holder: str, filters: tuple[str, ...]) -> None:
        def answered(result: Result) -> None:
            shelf.heard(result)
            if not shelf.answers:
                shelf.unheard.update(dict.fromkeys([(holder, filter) for filter in filters]))
                for oldest in list(islice(shelf.unheard, max(0, len(shelf.unheard) - UNHEARD_MAX))):
                    del shelf.unheard[oldest]

        shelf.broker.submit(CloseFilters(holder, filters), answered)

    def forget(self, ended: Lasting) -> None:
        """A session is over; whichever broker does not hear it now finds out by itself."""
        filters = (*ended.held, *ended.closing)
        ended.held.clear()
        for shelf in self._shelves.values():
            _cancel(shelf, ended, frozenset(filters))
            for first, end in portions(filters):
                request = CloseFilters(ended.holder(shelf.broker.name), filters[first:end])
                shelf.broker.submit(request, _ignore)

    def release(self, cursor: Cursor) -> None:
        """A cursor was taken out; the last one closes the filter."""
        feed = cursor.feed
        feed.members.discard(cursor)
        self._awaiting.discard(cursor)
        shelf = self._shelves[feed.broker]
        shelf.failed.pop(cursor, None)
        shelf.not_held.pop(cursor, None)
        if not feed.members and not feed.is_closed:
            shelf.closing[feed] = None
            self._wake()

    # ------------------------------------------------------------ brokers

    def _add_broker(self, broker: Broker) -> None:
        standing = next(iter(self._shelves.values()), None)
        shelf = self._shelves[broker] = BrokerFilters(broker)
        homeless, self._homeless = self._homeless, []
        for opening in homeless:
            self._place(opening)
        feeds = standing.feeds if standing is not None else {}
        for session in dict.fromkeys([member.session for feed in feeds.values() for member in feed.members.all()]):
            for subscription in session.subscriptions.values():  # by age: that decides who delivers a message
                if subscription.filter in feeds:
                    shelf.opening.append((self._cursor(shelf, session, subscription), None))
        self._wake()

    def _place(self, opening: PendingCursors) -> None:
        """At every broker that is somewhere; the others are asked when they are back. There the session's home may be
        among them, and whoever else is has opened the filter for the session by then."""
        live = [shelf for shelf in self._shelves.values() if shelf.broker.address] or list(self._shelves.values())
        opening.left = len(live)
        cursors: dict[BrokerFilters, Cursor] = {}
        for shelf in self._shelves.values():
            cursor = cursors[shelf] = self._cursor(shelf, opening.session, opening.subscription)
            shelf.opening.append((cursor, opening if shelf in live else None))
        lasting, subscription = opening.session.lasting, opening.subscription
        if lasting is not None and subscription.qos and subscription.filter not in lasting.held:
            lasting.held[subscription.filter] = None
            opening.left *= 2
            for shelf, cursor in cursors.items():
                row = _Hold(subscription.filter, opening, None)
                if shelf not in live:
                    self._awaiting.add(cursor)
                    row = _Hold(subscription.filter, None, cursor)
                shelf.holding.setdefault(lasting, []).append(row)

    def _cursor(self, shelf: BrokerFilters, session: Session, subscription: Subscription) -> Cursor:
        feed = shelf.feeds.get(subscription.filter)
        if feed is None:
            feed = shelf.feeds[subscription.filter] = Feed(shelf.broker, subscription.filter)
        for cursor in session.overlap.cursors if feed.members else ():
            if cursor.feed is feed:
                subscription.counts = subscription.counts or cursor.subscription.counts
                cursor.subscription = subscription
                return cursor
        cursor = Cursor(session, subscription, feed)
        lasting, filter = session.lasting, subscription.filter
        if lasting is not None and filter in lasting.held:
            cursor.doubtful_ms = lasting.doubtful_ms
            place = lasting.places.pop((filter, shelf.broker.name), None)
            if place is None:  # a broker that was not there when it subscribed
                self._awaiting.add(cursor)
                shelf.holding.setdefault(lasting, []).append(_Hold(filter, None, cursor))
            else:
                cursor.next, cursor.start, cursor.seen = place[:3]
                cursor.redos = list(place.redos) or None
        feed.members.add(cursor)
        session.overlap.add(cursor)
        return cursor

    # ------------------------------------------------------------ rounds

    def flush(self) -> None:
        for shelf in self._shelves.values():
            if shelf.closing:
                self._close(shelf)
            if shelf.opening:
                self._open(shelf)
            if shelf.holding:
                self._hold(shelf)

    def _close(self, shelf: BrokerFilters) -> None:
        some = list(islice(shelf.closing, CLOSES_MAX))
        feeds = [feed for feed in some if not feed.members]
        for feed in some:
            del shelf.closing[feed]
        if shelf.closing:
            self._wake()
        for feed in feeds:
            feed.is_closed = True
            del shelf.feeds[feed.filter]
        filters = [feed.filter for feed in feeds]
        for first, end in portions(filters):
            shelf.broker.submit(CloseFilters(self._owner, tuple(filters[first:end])), _ignore)

    def _open(self, shelf: BrokerFilters) -> None:
        waiting: dict[Feed[Cursor], list[tuple[Cursor, PendingCursors | None]]] = {}
        opening, shelf.opening = shelf.opening, []
        for cursor, one in opening:
            if not cursor.feed.is_closed:
                waiting.setdefault(cursor.feed, []).append((cursor, one))
            elif one is not None:  # taken out before the broker heard of it
                one.opened(cursor, 0)
        feeds = list(waiting)
        for first, end in portions([feed.filter for feed in feeds]):
            some = {feed: waiting[feed] for feed in feeds[first:end]}
            request = OpenFilters(self._owner, tuple([feed.filter for feed in some]))
            shelf.broker.submit(request, partial(self._opened, shelf, some))

    def _hold(self, shelf: BrokerFilters) -> None:
        """Opens filters in the names of sessions, whose positions in them then outlive this gateway."""
        holding, shelf.holding = shelf.holding, {}
        for lasting, wanted in holding.items():
            rows = [row for row in wanted if row.filter not in lasting.closing]
            if len(rows) < len(wanted):  # these begin anew, behind their close
                shelf.holding[lasting] = [row for row in wanted if row.filter in lasting.closing]
            holder = lasting.holder(shelf.broker.name)
            filters = [row.filter for row in rows]
            self.wanted(shelf.broker, holder, filters)
            for first, end in portions(filters):
                request = OpenFilters(holder, tuple(filters[first:end]))
                shelf.broker.submit(request, partial(self._held, shelf, rows[first:end]))

    def _held(self, shelf: BrokerFilters, rows: list[_Hold], result: Result) -> None:
        shelf.heard(result)
        for row, answer in zip(rows, answers(result, [row.filter for row in rows]), strict=True):
            cursor = row.cursor
            if row.opening is not None:
                row.opening.answered(answer if isinstance(answer, PenstockError) else None)
            elif cursor is None or cursor not in self._awaiting:
                continue
            elif isinstance(answer, PenstockError):
                shelf.not_held[cursor] = row
            else:
                self._awaiting.remove(cursor)
                cursor.feed.queue = answer.queue
                self._begun(cursor, answer.offset, answer.position)

    def _opened(
        self,
        shelf: BrokerFilters,
        waiting: dict[Feed[Cursor], list[tuple[Cursor, PendingCursors | None]]],
        result: Result,
    ) -> None:
        shelf.heard(result)
        told = answers(result, [feed.filter for feed in waiting])
        for answer, (feed, entries) in zip(told, waiting.items(), strict=True):
            if isinstance(answer, PenstockError):
                _not_opened(shelf, entries, answer)
                continue
            feed.queue = answer.queue
            feed.begin_at(answer.offset)
            for cursor, opening in entries:
                if cursor not in self._awaiting:
                    self._begun(cursor, answer.offset, answer.position)
                if opening is not None:
                    opening.opened(cursor, answer.position)

    def tick(self, now: float, shared: Callable[[], Collection[Broker]] = tuple) -> None:
        """Renews the leases when a third of their time has passed, and asks again for what failed. A lease is for all
        that its owner has open, so it is renewed also where that is only ``shared`` subscriptions."""
        for shelf in self._shelves.values():
            if shelf.failed or shelf.not_held or shelf.unheard:
                self._ask_again(shelf)
        if now - self._kept_at >= self._lease_s / 3:
            self._kept_at = now
            sharing = shared()
            for shelf in self._shelves.values():
                if shelf.feeds or shelf.broker in sharing:
                    shelf.broker.submit(KeepFilters(self._owner, self._lease_s), partial(self._on_kept, shelf.broker))

    def _ask_again(self, shelf: BrokerFilters) -> None:
        """Repeats all failed requests if the broker answers; else one of each kind, which shows whether it is back."""
        count = None if shelf.answers else 1
        for cursor in list(islice(shelf.failed, count)):
            del shelf.failed[cursor]
            shelf.opening.append((cursor, None))
        for cursor in list(islice(shelf.not_held, count)):
            row, lasting = shelf.not_held.pop(cursor), cursor.session.lasting
            if lasting is not None:
                shelf.holding.setdefault(lasting, []).append(row)
        for holder, filters in shelf.take_unheard().items():
            for first, end in portions(filters):
                self._let_go(shelf, holder, tuple(filters[first:end]))
        self._wake()


def _not_opened(
    shelf: BrokerFilters, entries: list[tuple[Cursor, PendingCursors | None]], error: PenstockError
) -> None:
    for cursor, opening in entries:
        if opening is not None:
            opening.answered(error)
        elif cursor in cursor.feed.members:
            shelf.failed[cursor] = None


def _cancel(shelf: BrokerFilters, lasting: Lasting, filters: Container[str]) -> None:
    """Cancels a filter that the next round would open: an open must not come behind its close."""
    rows = shelf.holding.pop(lasting, [])
    left = [row for row in rows if row.filter not in filters]
    if left:
        shelf.holding[lasting] = left
    for row in rows:
        if row.filter in filters and row.opening is not None:
            row.opening.answered(None)


def _ignore(result: Result) -> None:
    """A lost close is made good by the lease, a lost heartbeat by the next one."""
