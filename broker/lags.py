"""The lag of shared subscriptions and durable MQTT sessions, as a few numbers for all of them.

A message counts until its reader has finished it: for a share until it is settled; for a session until it was sent, as
its gateway last saved it (``penstock.protocol.requests.sessions.saved_places``). Of a session, messages at its home
count; for messages at other brokers ask ``penstock session``. A session whose bytes cannot be read is counted by
itself, in no sum.

There may be 1,000,000 sessions and 100,000 shares, so each tick looks at a slice of them. The figures are those of the
last finished look; before the first there are none.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator
from typing import Final

from broker.filters.fold import LASTING, Filters
from broker.groups.readers import Readers
from broker.sessions.fold import Sessions
from broker.shares.fold import Shares
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from penstock.errors import Damaged, QueueNotFound
from penstock.protocol.requests.sessions import CONNECTED, saved_places
from penstock.service.metrics import with_label
from topicmap.queues import filter_queue, is_pop, share_queue

EVERY_S: Final = 10.0
"""Seconds between two searches."""
SLICE: Final = 100
"""What a tick looks at: readers and queues, and what of a reader has a lot to be gone through counts more."""
RANGES: Final = 64
"""Settled ranges of a share that count as one reader more."""
FLOW_BYTES: Final = 256
"""Saved bytes of a session that do."""
LAGGING: Final = 1_000
"""A reader with more messages before it *lags*."""
PLACES_MAX: Final = 1_024
"""Queues that are kept in mind to be looked up, each once for all its readers."""
_DONE: Final = object()
Slices = Generator[None, None, None]
_log = logging.getLogger(__name__)


class Lags:
    """The messages that a broker's readers have not finished.

    Args:
        broker: this broker's name, by which sessions know their places.
    """

    def __init__(self, state: BrokerState, store: MessageStore, broker: str, readers: Readers) -> None:
        self._readers = readers
        self._shares: Shares = state.shares
        self._filters: Filters = state.filters
        self._sessions: Sessions = state.sessions
        self._store = store
        self._broker = broker
        self._begins = 0.0
        self._look: _Look | None = None
        self._unreadable = 0
        self._figures: dict[str, float] = {}

    def figures(self) -> dict[str, float]:
        """As the last look found them."""
        return self._figures

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """A slice of the work, if it is time."""
        if self._look is None:
            if now < self._begins:
                return
            self._look = _Look(self._shares, self._filters, self._sessions, self._store, self._broker)
        if next(self._look.slices, _DONE) is _DONE:
            self._figures = self._look.figures() | {
                with_label("penstock_unread_age_s", "by", readers): self._age_s(position, now_ms)
                for readers, position in (*self._look.oldest.items(), ("groups", self._readers.needed_from))
                if position != 0  # of groups: not known yet
            }
            self._tell(self._look.unreadable)
            self._look, self._begins = None, now + EVERY_S

    def _tell(self, unreadable: list[str]) -> None:
        if len(unreadable) > self._unreadable:
            _log.error("what was saved of %d sessions cannot be read, of %s first", len(unreadable), unreadable[0])
        self._unreadable = len(unreadable)

    def _age_s(self, position: int | None, now_ms: int) -> float:
        """How long ago the record at a log position was stored; 0 where there is none."""
        if position is not None and position < self._store.written:
            with contextlib.suppress(Damaged):
                return max(0, now_ms - self._store.stored_ms(position)) / 1000
        return 0.0


class _Tally:
    """Some readers together."""

    def __init__(self) -> None:
        self.count = self.lag = self.most = self.lagging = 0

    def add(self, lag: int) -> None:
        self.count += 1
        self.lag += lag
        self.most = max(self.most, lag)
        self.lagging += lag > LAGGING

    def figures(self, readers: str, labels: str = "") -> dict[str, float]:
        return {
            f"penstock_{readers}_lag_messages{labels}": self.lag,
            f"penstock_{readers}_lag_messages_most{labels}": self.most,
            f"penstock_{readers}_lagging{labels}": self.lagging,
        }


class _Look:
    """One look at all of them, slice by slice. ``oldest``: where the oldest message is stored that a reader has not
    done with, if there is one."""

    def __init__(self, shares: Shares, filters: Filters, sessions: Sessions, store: MessageStore, broker: str) -> None:
        self._shares = shares
        self._filters = filters
        self._sessions = sessions
        self._store = store
        self._broker = broker
        self._work = 0
        self._of_shares, self._connected, self._away = _Tally(), _Tally(), _Tally()
        self._unattended = 0
        self.unreadable: list[str] = []
        self.oldest: dict[str, int | None] = {"shares": None, "sessions": None}
        self.slices = self._all()

    def figures(self) -> dict[str, float]:
        """What was found."""
        return (
            self._of_shares.figures("shares")
            | self._connected.figures("sessions", '{client="connected"}')
            | self._away.figures("sessions", '{client="away"}')
            | {"penstock_shares_unattended": self._unattended, "penstock_sessions_away": self._away.count}
            | {"penstock_sessions_unreadable": len(self.unreadable)}
        )

    def _all(self) -> Slices:
        places: dict[str, int] = {}
        for share in self._shares.names:
            yield from self._done(1 + self._look_at_share(share, places) // RANGES)
            if len(places) >= PLACES_MAX:
                yield from self._find_oldest("shares", places)
        yield from self._find_oldest("shares", places)
        for client in self._sessions.clients:
            yield from self._done(1 + self._look_at_session(client, places) // FLOW_BYTES)
            if len(places) >= PLACES_MAX:
                yield from self._find_oldest("sessions", places)
        yield from self._find_oldest("sessions", places)

    def _done(self, work: int) -> Slices:
        self._work += work
        if self._work >= SLICE:
            self._work = 0
            yield

    def _look_at_share(self, share: str, places: dict[str, int]) -> int:
        """Gives how many ranges were gone through; none if it has ended meanwhile."""
        settled = self._shares.get(share)
        if settled is None:
            return 0
        queue = share_queue(share)
        bounds = self._store.bounds(queue)
        lag = settled.count_open(bounds.min, bounds.end)
        self._of_shares.add(lag)
        if lag:
            _keep_first(places, queue, settled.open_from(bounds.min)[0])
            self._unattended += not is_pop(share) and all(
                [owner.startswith(LASTING) for owner in self._filters.owners_of(share)]
            )
        return len(settled.starts)

    def _look_at_session(self, client: str, places: dict[str, int]) -> int:
        """Gives how many bytes were gone through; none if it is over meanwhile."""
        entry = self._sessions.get(client)
        if entry is None:
            return 0
        tally = self._connected if entry.state == CONNECTED else self._away
        try:
            saved = saved_places(entry.flow)
        except Damaged:
            self.unreadable.append(client)
            tally.count += 1
            return len(entry.flow)
        lag = 0
        for filter, broker, following in saved:
            if broker == self._broker:
                queue = filter_queue(filter)
                with contextlib.suppress(QueueNotFound):  # of a share, which was counted, or of a filter that is closed
                    bounds = self._store.bounds(queue)
                    at = max(following, bounds.min)
                    if at < bounds.end:
                        lag += bounds.end - at
                        _keep_first(places, queue, at)
        tally.add(lag)
        return len(entry.flow)

    def _find_oldest(self, readers: str, places: dict[str, int]) -> Slices:
        """Of many who read a queue only the last one has its position looked up. Empties ``places``."""
        while places:
            queue, offset = places.popitem()
            # a filter that was closed since, or of an unknown place
            with contextlib.suppress(QueueNotFound, Damaged):
                position, known = self._store.position_of(queue, offset), self.oldest[readers]
                self.oldest[readers] = position if known is None else min(position, known)
            yield from self._done(1)


def _keep_first(places: dict[str, int], queue: str, offset: int) -> None:
    places[queue] = min(offset, places.get(queue, offset))
