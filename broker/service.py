"""The broker's requests: a table from request type to function, and the errors that each may end in.

Pure except for the store's disk: ``now`` (monotonic, for deadlines), ``now_ms`` (store time) and ``age_ms`` (for ages,
``store_clock.py``) are arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.about import AboutBroker
from broker.figures import Figures
from broker.filters.requests import FilterRequests
from broker.groups.readers import Readers
from broker.groups.requests import SESSION_S_MAX, GroupRequests
from broker.groups.retries import RetryRequests
from broker.kernel.handler import handlers_of
from broker.kernel.outcomes import Now, Outcome
from broker.kernel.theme import Themes, Wakers
from broker.lags import Lags
from broker.lineage.epoch import Epoch
from broker.lineage.owner import LogOwner
from broker.messages.acceptance import Acceptance
from broker.messages.audit import AuditLog
from broker.messages.dead_letters import DeadLetters
from broker.messages.requests import MessageRequests
from broker.messages.trace import Trace
from broker.producers.repeats import Repeats
from broker.sessions.exchange_requests import ExchangeRequests
from broker.sessions.gateways import Gateways
from broker.sessions.pages import SessionPages
from broker.sessions.questions import SessionQuestions
from broker.sessions.requests import SessionRequests
from broker.settings import BrokerSettings
from broker.shares.pops import PopRequests
from broker.shares.requests import ShareRequests
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.timer_clock import TimerClock
from broker.timers.requests import TimerRequests
from broker.topics.changes import TopicChanges
from broker.topics.empty import EmptyTopics
from broker.topics.requests import TopicQuota, TopicRequests
from broker.transactions.requests import TransactionRequests
from broker.usage import Usage
from penstock.errors import PenstockError, StorageFailed, StorageFull, UnknownRequest
from penstock.protocol.requests.request import Request


class Awaited(Protocol):
    """The parked requests, as themes see them."""

    def __len__(self) -> int: ...

    def is_awaited(self, waker: str) -> bool:
        """Whether one of them waits for this queue."""
        ...


class BrokerService:
    """A broker without its network: requests in, outcomes out."""

    def __init__(
        self,
        settings: BrokerSettings,
        state: BrokerState,
        store: MessageStore,
        now: float,
        now_ms: int,
        age_ms: int | None = None,
        *,
        timer_clock: TimerClock,
        figures: Figures | None = None,
        parked: Awaited | None = None,
        on_routes_changed: Callable[[], None] | None = None,
        read_clock: Callable[[], Mapping[str, float]] = dict,
        epoch: int = 0,
        more: Sequence[object] = (),
        quota: TopicQuota | None = None,
    ) -> None:
        """``age_ms``: ``now_ms`` unless given. ``figures``: the process's. ``parked``: requests that wait. ``more``:
        extra themes. ``on_routes_changed``: a topic begins, changes or ends. ``epoch``: its own, or 0: the next."""
        age_ms = now_ms if age_ms is None else age_ms
        self._settings, self._state, self._store = settings, state, store
        self._figures = Figures() if figures is None else figures
        self._parked, self._on_routes_changed, self._read_clock = parked, on_routes_changed, read_clock
        self._failed: StorageFailed | None = None
        self._epoch = Epoch(state.epochs, store, settings.name, epoch)
        self._begin_epoch(now_ms)
        self.topics = TopicRequests(state, store, settings, self._topic_changed, quota)
        repeats, letters = Repeats(state.producers, store), DeadLetters(self.topics)
        self._acceptance = Acceptance(self.topics, state, settings, repeats)
        trace = self._trace = Trace(state, self.topics, store, settings, now)
        self._messages = MessageRequests(
            store, self.topics, self._acceptance, settings, self._figures, state.gateway_epochs, state.identity, trace
        )
        wakers = self._wakers = Wakers()
        self._groups = GroupRequests(state, store, self.topics, self._epoch, settings, now, wakers, trace, self._takers)
        members, silence_s = self._groups.groups, settings.reader_silence_s
        self._readers = Readers(state.offsets, members, store, settings.groups_max, silence_s, SESSION_S_MAX, now)
        gateways, questions = Gateways(state.sessions), SessionQuestions(state, self._wakers)
        timers = TimerRequests(state.timers, store, self._acceptance, letters, settings, timer_clock, self._trace)
        retries = RetryRequests(members, store, state, letters, settings.retry_delays_s, self._trace)
        pops = self._pops = PopRequests(state, store, self.topics, members, retries, settings, wakers, trace)
        halves = TransactionRequests(state.halves, store, self._acceptance, settings, now, self._wakers, self._trace)
        self._owner = LogOwner(store, state, (timers.carry, halves.carry))
        themes = (
            self.topics,
            TopicChanges(state, store, self.topics, members, self._readers, settings),
            self._messages,
            repeats,
            self._groups,
            FilterRequests(state, store, settings, now, self._trace),
            SessionRequests(state, store, settings, gateways, questions, now, age_ms, self._wakers),
            timers,
            halves,
            EmptyTopics(state, self.topics, members, settings.empty_topic_s, self._is_awaited),
            ShareRequests(state, store, settings, now, self._wakers, pops.counts),
            self._readers,
            Lags(state, store, settings.name, self._readers),
            Usage(state, settings, lambda: self._groups.count),
            gateways,
            questions,
            ExchangeRequests(state, store),
            SessionPages(state, store),
            retries,
            pops,
            self._trace,
            AuditLog(self.topics, store, settings),
        )
        self.themes = Themes((*themes, *more))
        self._table = handlers_of((*self.themes.all, AboutBroker(settings.name, self.figures)))

    def _begin_epoch(self, now_ms: int) -> None:
        with contextlib.suppress(StorageFull):  # tried again at each tick
            self._epoch.record(now_ms)

    def _takers(self, group: str) -> tuple[str, ...]:
        return self._pops.takers(group)

    def handle(self, request: Request, now: float, now_ms: int) -> Outcome:
        """Carries a request out. Never raises a ``PenstockError``: it is the outcome then."""
        handler = self._table.get(type(request))
        if handler is None:
            return Now(UnknownRequest(f"a broker does not serve {type(request).__name__}"))
        try:
            return handler(request, now, now_ms)
        except StorageFailed as error:
            self._failed = error
            return Now(error)
        except PenstockError as error:
            return Now(error.as_result())

    @property
    def durable(self) -> int:
        """Log position up to which this disk has everything."""
        return self._store.durable

    @property
    def committed(self) -> int:
        """Log position up to which everything is committed."""
        return self._store.committed

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Handles the passing of time: silent members and owners, the store's upkeep.

        Raises ``StorageFailed`` once the disk has failed: this broker is to end.
        """
        if self._failed is not None:
            raise self._failed
        self._begin_epoch(now_ms)
        self.themes.tick(now, now_ms, age_ms)
        self._store.tick(now_ms, age_ms)  # it looks first whether the folder is still its own
        self._owner.tick(now_ms, age_ms, self._readers.needed_from)

    def take_wakers(self) -> list[str]:
        """Queues with newly readable messages, groups with a new generation and sessions that changed hands, since the
        last call."""
        wakers = self._store.take_readable()
        if self._wakers:
            wakers += self._wakers
            self._wakers.clear()
        return wakers

    def figures(self) -> dict[str, float]:
        """Counters since start, and gauges."""
        state, store = self._state, self._store
        return self._figures.read(
            rocketmq_storage_size=store.written - store.start,
            rocketmq_storage_flush_behind_bytes=store.written - store.durable,
            penstock_open_filters=len(state.filters),
            penstock_parked_requests=0 if self._parked is None else len(self._parked),
            penstock_retained_messages=len(state.retained),
            penstock_mqtt_sessions=len(state.sessions),
            penstock_session_bytes=state.sessions.bytes,
            penstock_damaged_frames_total=store.damaged,
            penstock_disk_full=int(store.is_full),
            penstock_index_unwritable=int(bool(store.index_trouble)),
            **self.themes.figures(),
            **self._read_clock(),
        )

    def _topic_changed(self, topic: str) -> None:
        self._acceptance.forget()
        self._trace.topics_changed()
        self._groups.topic_changed(topic)
        if self._on_routes_changed is not None:
            self._on_routes_changed()

    def _is_awaited(self, queue: str) -> bool:
        return self._parked is not None and self._parked.is_awaited(queue)
