"""The face of a broker, whether it leads its log or not: sessions, tasks and figures use it as long as the process
lives.

Service and dispatch belong to one leadership. ``step_down`` answers all waiting requests and drops both; ``lead`` makes
new ones in a new epoch, with the state that the log gives. Members and leases, which are in memory only, are gone, as
after a restart. Pure: it calls back, it never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.about import AboutBroker
from broker.figures import Figures
from broker.kernel.handler import handlers_of
from broker.net.dispatch import NOT_HERE, Confirm, Dispatch
from broker.net.live import LiveRequests
from broker.net.parked import ParkedRequests
from broker.net.spans import open_store_spans, traced
from broker.reads import FollowerReads
from broker.replica.requests import Alone, Group, ReplicaRequests
from broker.service import BrokerService
from broker.settings import BrokerSettings
from broker.state import BrokerState
from broker.store.message_store import MessageStore
from broker.store_clock import StoreClock
from broker.timer_clock import TimerClock
from broker.topics.quota import Asking, TopicQuota
from penstock.errors import PenstockError, Unavailable
from penstock.protocol.link import OnResult
from penstock.protocol.requests.request import Request

OnUnsynced = Callable[[bool, bool], None]
ALONE_AFTER: Final = 8
"""After this many batches of one session alone, the next is expected to be its alone too."""


class Lead:
    """A broker's leadership of its log.

    Args:
        on_unsynced: as for ``Dispatch``.
        on_routes_changed: called when a topic begins, changes or ends.
        read_clock: the figures of the clock.
        epoch: in which it leads first; 0: the next one, for there is no other copy.
        group: of the copies of its log; None: there is no other.
        leads: whether it leads from the beginning.
        confirm: as for ``Dispatch``.
        asker: gives the client whose request is carried out.

    Attributes:
        live: changes settings while it runs.
        dispatch: carries requests out; refuses all of them while this broker does not lead.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        state: BrokerState,
        store: MessageStore,
        clock: StoreClock,
        timer_clock: TimerClock,
        on_unsynced: OnUnsynced,
        on_routes_changed: Callable[[], None] | None = None,
        read_clock: Callable[[], Mapping[str, float]] = dict,
        epoch: int = 0,
        group: Group | None = None,
        leads: bool = True,
        confirm: Confirm | None = None,
        asker: Asking = lambda: None,
    ) -> None:
        self._group = group or Alone(settings.name, lambda: state.epoch, store)
        self._about_group = ReplicaRequests(self._group)
        self._settings = settings
        self._state = state
        self._store = store
        self._clock = clock
        self._timer_clock = timer_clock
        self._on_unsynced = on_unsynced
        self._confirm = confirm
        self._quota = TopicQuota(settings.user_topics_per_min_max, asker)
        self._on_routes_changed = on_routes_changed
        self._read_clock = read_clock
        self._figures = Figures(clock.wall_ms)
        self._held: set[int] = set()
        self._is_held_back = False
        self._writer, self._alone = -1, 0  # the session that has changed something last, and how often in a row
        self.live = LiveRequests(settings.connection_log)
        self.spans = open_store_spans(settings.trace_export, settings.name)
        self._asides = handlers_of((self._about_group, self.live, AboutBroker(settings.name, self.figures)))
        self._refusal: PenstockError = Unavailable(NOT_HERE)
        self.service: BrokerService | None = None
        self.dispatch = self._begun(epoch) if leads else self._deposed()

    @property
    def leads(self) -> bool:
        """Whether requests are carried out."""
        return self.service is not None

    def lead(self, epoch: int = 0, store: MessageStore | None = None) -> None:
        """This broker leads its log, in a new epoch. Nothing where it does already. ``store``: of the log, where that
        was opened again."""
        if self.service is None:
            before, self._store = self.dispatch, store or self._store
            self.dispatch = self._begun(epoch)
            before.step_down(Unavailable("this broker leads its log now: ask again"))

    def follow(self, store: MessageStore) -> None:
        """Another node leads the log, which was opened again: it can be read."""
        before, self._store = self.dispatch, store
        self.dispatch = self._deposed()
        before.step_down(self._refusal)

    def let_go(self) -> None:
        """The log is to be closed, until ``follow``: nothing is read meanwhile."""
        if self.service is None:
            self.dispatch.step_down(self._refusal)

    def refuse(self, error: PenstockError) -> None:
        """While it does not lead, requests are answered with this error."""
        self._refusal = error
        if self.service is None:
            self.dispatch.refuse(error)

    def hold_back(self, error: PenstockError | None) -> None:
        """While it leads, appends are refused with this error; None: they are not."""
        self._is_held_back = error is not None
        self._store.log.hold_back(error)

    def step_down(self, error: PenstockError | None = None) -> None:
        """Ends the leadership: parked requests are answered with this error, and requests that wait for a disk with one
        that says that their outcome is unknown. So is whatever comes until it leads again."""
        if self.service is not None:
            self.service = None
            self.hold_back(None)
            self._store.disown()
            self._refusal = error or Unavailable(NOT_HERE)
            self.dispatch.step_down(self._refusal)

    def close(self, error: PenstockError) -> None:
        """The process ends: see ``Dispatch.close``."""
        self.dispatch.close(error)
        if self.spans is not None:
            self.spans.close()

    def _deposed(self) -> Dispatch:
        clock, figures = self._clock, self._figures
        reads = FollowerReads(self._settings, self._state, self._store, figures, clock.monotonic())
        parked = self._new_parked()
        made = Dispatch(None, clock, self._on_unsynced, parked, figures, self._asides, reads)
        made.refuse(self._refusal)
        return made

    def _new_parked(self) -> ParkedRequests:
        parked = ParkedRequests()
        for session in sorted(self._held):
            parked.hold(session)
        return parked

    def _begun(self, epoch: int) -> Dispatch:
        clock, parked = self._clock, self._new_parked()
        self.service = BrokerService(
            self._settings,
            self._state,
            self._store,
            clock.monotonic(),
            clock.wall_ms(),
            clock.age_ms(),
            timer_clock=self._timer_clock,
            figures=self._figures,
            parked=parked,
            on_routes_changed=self._on_routes_changed,
            read_clock=self._read_clock,
            epoch=epoch,
            more=(self._about_group, self.live),
            quota=self._quota,
        )
        return Dispatch(
            self.service, clock, self._on_unsynced, parked, self._figures, self._asides, confirm=self._confirm
        )

    # ------------------------------------------------------------ what the flusher and time bring

    def synced(self, took_s: float) -> None:
        """The log was synced once more; the sync took ``took_s`` seconds."""
        self._figures.synced(took_s)

    def tick(self) -> None:
        """Time has passed. Raises as ``Dispatch.tick``."""
        if not self._is_held_back:  # a tick appends
            self.dispatch.tick()
        if self.service is None:
            self._store.tick(self._clock.wall_ms(), self._clock.age_ms())

    # ------------------------------------------------------------ sessions

    def is_alone(self, session: int) -> bool:
        """Whether this session, which has changed something, is the only one that did for a while: a sync that waits
        for the turn of others would be in vain."""
        if session != self._writer:
            self._writer, self._alone = session, 0
        self._alone += 1
        return self._alone > ALONE_AFTER

    def hold(self, session: int) -> None:
        """Holds the parked requests of a session until it is released."""
        self._held.add(session)
        self.dispatch.hold(session)

    def release(self, session: int) -> None:
        """Answers parked requests of the session again."""
        self._held.discard(session)
        self.dispatch.release(session)

    def drop(self, session: int) -> None:
        """A session is gone; its parked requests are forgotten."""
        self._held.discard(session)
        self.dispatch.drop(session)

    # ------------------------------------------------------------ figures

    def figures(self) -> dict[str, float]:
        """Counters since the process began, and gauges; those of the themes only while it leads."""
        if self.service is not None:
            return self.service.figures()
        return self._figures.read(penstock_disk_full=int(self._store.is_full), **self._read_clock())

    def reasons(self) -> list[str]:
        """The reasons why it is not ready."""
        return [] if self.service is not None else self._group.reasons()


class BrokerSession:
    """A broker's state for one peer. ``number``: its own among all sessions. Its batch is complete for now if it ends
    the rounds of its process, or has lately been the only session with changes."""

    def __init__(self, lead: Lead, number: int, ends_rounds: bool) -> None:
        self._lead = lead
        self._number = number
        self._ends_rounds = ends_rounds
        self._changes = False

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Carries one request out."""
        if not request.is_repeatable:
            self._changes = True
            if self._lead.spans is not None:
                on_result = traced(self._lead.spans, request, on_result)
        self._lead.dispatch.submit(request, on_result, self._number)

    def flush(self) -> None:
        """Ends the batch: all requests of one read, or of one round, have been submitted."""
        is_whole = self._ends_rounds
        if self._changes:
            self._changes = False
            is_whole = self._lead.is_alone(self._number) or is_whole
        self._lead.dispatch.end_batch(is_whole)

    def hold(self) -> None:
        """Much waits to be sent to the peer."""
        self._lead.hold(self._number)

    def release(self) -> None:
        """Notes that there is room again."""
        self._lead.release(self._number)

    def close(self) -> None:
        """The peer is gone."""
        self._lead.drop(self._number)
