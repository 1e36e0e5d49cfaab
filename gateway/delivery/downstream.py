"""Broker to device: one feed per light queue in use, and a cursor for every session, which never runs ahead of the
client.

A feed's pull brings a batch, from a broker in this process as the stored runs. It is decoded once, and encoded once per
kind of subscriber at the head (``Run``). A session whose window or output is full becomes *lagging*: it takes no
memory, and reads on from the feed's window or by its own pull when there is room. A session without a connection is
only its cursors. A QoS 0 message for a full output is dropped and counted.

A pull is handed out in its completion. Other work is noted and done at the round's end in ``flush``, so that one round
makes one OpenFilters and one CloseFilters per broker. A broker in this process may answer before a completion has
ended: the answer to a session's pull sends nothing, but it may find the filter closed, and then no cursor reads along
any more (``_reopen``, ``_try``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.brokers import Brokers
from gateway.delivery.filter_leases import FilterLeases, OnDone
from gateway.delivery.named_positions import NamedPositions
from gateway.delivery.replay import Replays
from gateway.delivery.resending import Resending
from gateway.delivery.retained import Retained
from gateway.delivery.scheduler import DeliveryScheduler
from gateway.delivery.sending import DeliverySpans, Runs, Sending
from gateway.delivery.session_holds import SessionHolds
from gateway.delivery.shared import SharedSubscriptions
from gateway.delivery.tracing import DeviceTrace
from gateway.login.auth import Identity
from gateway.messages.batch import EMPTY, Batch, given_batch, sound_batch
from gateway.messages.feed import Feed
from gateway.messages.windows import Windows
from gateway.mqtt.reason_codes import ReasonCode
from gateway.net.rounds import Rounds, Stage
from gateway.sessions.options import Start
from gateway.sessions.saver import SessionSaver
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from gateway.settings import GatewaySettings
from penstock.errors import OffsetOutOfRange, PenstockError, QueueNotFound
from penstock.protocol.requests.given import GivenPulled
from penstock.protocol.requests.messages import BoundsReply, Pull, Pulled, QueryBounds
from penstock.protocol.requests.request import Result
from penstock.world import Clock
from topicmap.names import is_share

_log = logging.getLogger(__name__)

_OWN_PULL_BYTES: Final = 64 * 1024
_OWN_PULL_COUNT: Final = 256
CLOSED: Final = -2  # ``Cursor.next`` of a cursor that was taken out


class Downstream(Stage):
    """All deliveries of one gateway."""

    def __init__(
        self,
        brokers: Brokers,
        settings: GatewaySettings,
        owner: str,
        clock: Clock,
        saver: SessionSaver,
        rounds: Rounds,
        topic_of: Callable[[str], str | None],
        may_publish: Callable[[Identity, str], bool],
        spans: DeliverySpans | None = None,
    ) -> None:
        """``may_publish``: whether a client may publish under a name, so that its retained message there is sent.
        ``spans``: the recorder of traces; ``None`` without one."""
        self._saver = saver
        self._pull_bytes_max = settings.pull_bytes_max
        self._pull_count_max = settings.pull_count_max
        self._pull_wait_s = settings.pull_wait_s
        self._windows: Windows[Cursor] = Windows(self._pull_bytes_max)
        wake = rounds.wake
        self._due = DeliveryScheduler(self._pump, self._pull, wake)
        self._failed: list[Feed[Cursor] | Cursor] = []
        self._replaces: dict[Subscription, Subscription | None] = {}  # on their way: what stood before each
        self._on_pulled = self._pulled
        life = f"{owner}/{clock.wall_ms()}"  # what one of the same name that died had is not kept open by this one
        self.positions = NamedPositions(life, topic_of, self._replaces.__contains__, wake)
        self.sending = Sending(clock, saver, self.positions, spans)
        self.resending = Resending(clock, saver, self.sending, self.pump_later)
        self.retained = Retained(clock, self._try, rounds, self.sending.as_variant, self._fail, may_publish)
        self.replays = Replays(clock, self.sending.as_variant, self._try, rounds, self.positions, self._fail)
        self.trace = DeviceTrace(owner)
        self._leases = FilterLeases(brokers, life, settings.filter_lease_s, self._begun, wake, self.trace.kept)
        self.shared = SharedSubscriptions(
            brokers, life, settings, clock, self.sending.as_variant, wake, self._leases.wanted
        )
        self.holds = SessionHolds(self._leases, self.shared, saver.note)
        self.failures = self.lost = 0  # clients that an unforeseen error has ended; messages
        self.refused = 0  # subscriptions for which a broker had no room

    @property
    def filters_open(self) -> int:
        """How many light queues this gateway holds open, at all brokers together."""
        return len(self._leases)

    def count_refused(self) -> None:
        """A broker had no room for a subscription."""
        self.refused += 1

    # ------------------------------------------------------------ subscriptions

    def subscribe(
        self,
        session: Session,
        subscription: Subscription,
        wants_retained: bool,
        on_done: OnDone,
        history: tuple[Start, str] | None = None,
    ) -> None:
        """Adds or replaces a subscription (MQTT-3.8.4-3). ``on_done`` gets the error that kept it from standing, if
        any; retained messages follow, or the ``history`` of a topic from some start on."""
        before = session.subscriptions.get(subscription.filter)
        self._replaces[subscription] = self._replaces.get(before, before) if before is not None else None
        session.subscriptions[subscription.filter] = subscription
        session.note_terms()
        if is_share(subscription.filter):
            self._share(session, subscription, on_done)
            return
        if history:
            self.replays.coming[subscription] = history

        def opened(error: PenstockError | None, positions: dict[Cursor, int]) -> None:
            self.replays.coming.pop(subscription, None)
            stands = self._stands(session, subscription, error)
            mine = list(positions) if stands else []
            if mine and (history or subscription.counts):  # others may have come since
                mine = [one for one in session.overlap.cursors if one.subscription is subscription]
            for cursor in mine:
                self.positions.replaced(cursor)
            on_done(error)
            if wants_retained and not history and error is None:  # also where it was replaced before (MQTT-3.8.4-5)
                mine = [one for one in positions if one in one.feed.members]
            for cursor in mine if session.device is not None else ():
                if history:
                    self.replays.begin(cursor, *history)
                elif wants_retained:
                    self.retained.begin(cursor, positions[cursor])
                if cursor.past is not None:
                    self._set_lagging(cursor, True)
            self.pump_later(session)

        self._leases.open(session, subscription, opened)

    def _share(self, session: Session, subscription: Subscription, on_done: OnDone) -> None:
        """It is a member of a shared subscription from now on; what is retained is not sent (MQTT 5, 4.8.2)."""

        def opened(error: PenstockError | None) -> None:
            self._stands(session, subscription, error)
            on_done(error)

        self.shared.subscribe(session, subscription, opened)

    def _stands(self, session: Session, subscription: Subscription, error: PenstockError | None) -> bool:
        """The brokers have answered: whether it is the session's from now on. After an error that is what stood before,
        with its place and all that waits for it."""
        filter, before = subscription.filter, self._replaces.pop(subscription)
        latest = session.subscriptions.get(filter)
        if latest is not subscription:
            if error is None and before is not subscription and latest in self._replaces:
                self._replaces[latest] = subscription
            return False
        if error is None:
            self.holds.keep_no_more(session, filter)
        elif session.device is not None:  # else it has let go of all
            if before is None:
                self.unsubscribe(session, filter)
            else:
                self._put_back(session, before)
        return error is None

    def _put_back(self, session: Session, before: Subscription) -> None:
        session.subscriptions[before.filter] = before
        session.note_terms()
        if is_share(before.filter):
            self.shared.subscribe(session, before, None)
        for cursor in session.overlap.cursors:
            if cursor.subscription.filter == before.filter:
                cursor.subscription = before
                self.positions.replaced(cursor)
        self.holds.keep_no_more(session, before.filter)

    def unsubscribe(self, session: Session, filter: str) -> bool:
        """Ends a subscription; exchanges that have begun go on (MQTT-3.10.4-3). False if there was none."""
        subscription = session.subscriptions.pop(filter, None)
        if subscription is None:
            return False
        if subscription in self._replaces:
            self._replaces[subscription] = subscription  # it comes too late to stand
        if is_share(filter):
            self.shared.unsubscribe(session, filter)
        for cursor in [one for one in session.overlap.cursors if one.subscription.filter == filter]:
            self.positions.unsubscribed(cursor)
            self._end(cursor)
            session.overlap.remove(cursor)
            self._take_back(cursor)
        session.note_terms()
        self.holds.let_go(session, filter)
        return True

    def _take_back(self, ended: Cursor) -> None:
        """Others of its session deliver what was left to a cursor that does not come to it any more."""
        for other in ended.session.overlap.cursors:
            if other.next >= 0 and other.take_back(ended) and other.is_attached:
                self._set_lagging(other, True)
                self.pump_later(other.session)

    def resume(self, session: Session, subscriptions: Sequence[Subscription]) -> None:
        """The subscriptions of a session that was saved stand again, each from where it was."""
        for subscription in sorted(subscriptions, key=lambda one: not one.qos):
            session.subscriptions[subscription.filter] = subscription
            if is_share(subscription.filter):
                self.shared.resume(session, subscription)
            else:
                self._leases.resume(session, subscription)
        self.positions.resume(session)

    def leave(self, session: Session, *, ends: bool) -> None:
        """The connection is gone: the session has no place here any more, and if it ends, none anywhere."""
        for cursor in session.overlap.cursors:
            self._end(cursor)
        self._due.forget(session)
        self.resending.leave(session)
        self.positions.leave(session)
        if ends and session.lasting is not None:
            self.holds.forget(session.lasting)

    def attach(self, session: Session) -> None:
        """The session has a connection: what it was sent before goes first, then its cursors read from where they
        are."""
        self.resending.begin(session)
        for cursor in session.overlap.cursors:
            if cursor.next >= 0 and cursor.feed.queue:
                self._attach(cursor)

    def _begun(self, cursor: Cursor, offset: int, position: int) -> None:
        """A filter stands open for a cursor from this offset and log position on."""
        if cursor.next == -1:
            cursor.next, cursor.start = offset, position
        if cursor.next >= 0 and cursor.session.device is not None and not cursor.is_attached:
            self._attach(cursor)

    def _attach(self, cursor: Cursor) -> None:
        feed = cursor.feed
        feed.begin_at(cursor.next)
        feed.attach(cursor)
        lags = self.retained.resume(cursor) or self.replays.resume(cursor) or cursor.next < feed.head
        self._set_lagging(cursor, lags)
        if lags:
            self.pump_later(cursor.session)

    def _detach(self, cursor: Cursor) -> None:
        if cursor.feed.detach(cursor):
            if cursor.session.set_behind(cursor, False):
                cursor.feed.lagging -= 1
                self._windows.trim(cursor.feed)  # a window without readers is not extended
            cursor.backlog = None
            self.retained.stop(cursor)
            self.replays.interrupt(cursor)

    def _end(self, cursor: Cursor) -> None:
        """The subscription is over, or its connection is."""
        self._detach(cursor)
        self.replays.forget(cursor)
        self.positions.stop(cursor)
        cursor.next = CLOSED
        self._leases.release(cursor)

    # ------------------------------------------------------------ rounds

    def pump_later(self, session: Session) -> None:
        """Notes that there may be room again for a lagging session. Resent messages go before new ones."""
        if session.to_resend:
            self.resending.go_on(session)
        if session.behind:
            self._due.add(session)
        if session.is_sharing:
            self.shared.stir(session)

    def flush(self) -> bool:
        """Does what was noted since the last round. True if there is more to do at once."""
        if self._saver.eased:  # every round comes here
            for session in self._saver.take_eased():
                self.pump_later(session)
        self._due.take()
        self.replays.turns.take()
        self.retained.turns.take()
        self.positions.flush()
        self._leases.flush()
        return self.shared.flush() or bool(self._due)

    def tick(self, now: float) -> None:
        """Keeps the filters open and tries again what failed; to be called about every half second."""
        self._leases.tick(now, self.shared.brokers)
        self.shared.tick(now)
        self.trace.tick()
        self.retained.turns.retry()
        self.replays.turns.retry()
        self.positions.tick(now)
        failed, self._failed = self._failed, []
        for one in failed:
            if isinstance(one, Feed):
                one.is_pulling = False
                self._want(one)
            else:
                one.pulling = False
                self.pump_later(one.session)

    def _want(self, feed: Feed[Cursor]) -> None:
        if feed.wants_pull():
            self._due.add_feed(feed)

    # ------------------------------------------------------------ the live end

    def _pull(self, feed: Feed[Cursor]) -> None:
        feed.pull(self._pull_bytes_max, self._pull_count_max, self._pull_wait_s, self._on_pulled)

    def _pulled(self, feed: Feed[Cursor], result: Result) -> None:
        if isinstance(result, GivenPulled):
            if self._due.must_wait(feed):
                feed.is_pulling = False
                self._want(feed)
                return
            self._came(feed, given_batch(result.next - result.count, result.runs, feed), result.next)
        elif isinstance(result, Pulled):
            self._came(feed, sound_batch(result.count, result.body, feed), result.next)
        else:
            self._not_pulled(feed, None, feed.head, result)

    def _came(self, feed: Feed[Cursor], batch: Batch, head: int) -> None:
        feed.is_pulling = False
        if not feed.is_closed:
            self._dispatch(feed, batch, head)
            self._want(feed)
            self.sending.handed_out(batch)

    def _not_pulled(self, feed: Feed[Cursor], cursor: Cursor | None, first: int, result: Result) -> None:
        """The feed's pull brought nothing, or a cursor's own. Where both are under way the feed's shows by itself that
        the filter is closed: until then no cursor begins anew."""
        if isinstance(result, OffsetOutOfRange):
            feed.broker.submit(QueryBounds((feed.queue,)), partial(self._bounded, feed, cursor, first))
        elif isinstance(result, QueueNotFound) and (cursor is None or not feed.is_pulling):
            if cursor is not None:
                cursor.pulling = False
            self._reopen(feed)
        else:
            self._failed.append(feed if cursor is None else cursor)

    def _bounded(self, feed: Feed[Cursor], cursor: Cursor | None, first: int, result: Result) -> None:
        """The head, or a cursor's place, was outside the queue: go on at its beginning (retention has passed) or its
        end."""
        if not isinstance(result, BoundsReply):
            self._failed.append(feed if cursor is None else cursor)
            return
        bounds = result.bounds[0]
        at = bounds.min if first < bounds.min else bounds.end
        readers = feed.readers() if cursor is None else [cursor]  # one of its own may have jumped over the head
        self.lost += max(0, bounds.min - first) * sum([one.next == first for one in readers])
        if cursor is None:
            self._came(feed, EMPTY, at)
        else:
            cursor.pulling = False
            cursor.next = at if cursor.next == first else cursor.next
            self.pump_later(cursor.session)

    def _reopen(self, feed: Feed[Cursor]) -> None:
        """The broker has closed the filter (we were away for too long): its readers begin anew."""
        feed.is_pulling = False
        if feed.is_closed:
            return
        feed.head = -1
        for cursor in feed.members.all():
            self._detach(cursor)
            self.positions.opens_anew(cursor)
            cursor.session.overlap.remove(cursor)
            cursor.next = -1
            self.lost += 1
            self._take_back(cursor)
            cursor.session.overlap.add(cursor)  # the youngest now: by age others deliver what comes until it is open
            self._leases.open_again(cursor)

    def _dispatch(self, feed: Feed[Cursor], batch: Batch, head: int) -> None:
        """All cursors at the head get the batch in its shared form, if that is possible; the others one by one."""
        first, others = feed.head, []
        runs: Runs = {}
        for cursor in feed.readers():
            goes_on = cursor.next == first and cursor.past is None
            if goes_on and (not batch.count or self._goes_whole(cursor, batch, runs)):
                cursor.next = head
                if batch.count:
                    cursor.seen = batch.last
            else:
                others.append(cursor)
        if others or feed.lagging:
            feed.extend(batch.arrivals, head)
            for cursor in others:
                self._try(cursor)
            self._windows.trim(feed)
        else:
            feed.head = head

    def _goes_whole(self, cursor: Cursor, batch: Batch, runs: Runs) -> bool:
        try:
            return self.sending.run(cursor, batch, runs)
        except Exception:  # whose fault it is shows when its messages go one by one
            return False

    # ------------------------------------------------------------ those who lag

    def _pump(self, session: Session) -> None:
        for cursor, needs_room in list(session.behind.items()):
            if session.device is not None and not cursor.waits and not (needs_room and session.has_no_room):
                self._try(cursor)

    def _try(self, cursor: Cursor) -> None:
        if not self._due.has_looks and cursor.is_attached:
            self._set_lagging(cursor, True)
            self._due.add(cursor.session)
            return
        try:
            lags = not self._catch_up(cursor)
        except Exception:
            self._fail(cursor)
        else:
            if cursor.is_attached:  # else its filter was just found closed
                self._set_lagging(cursor, lags)

    def _fail(self, cursor: Cursor) -> None:
        self.failures += 1
        _log.exception("an unforeseen error during a delivery; its client is disconnected")
        if cursor.session.device is not None:
            cursor.session.device.fail(ReasonCode.UNSPECIFIED_ERROR)

    def _set_lagging(self, cursor: Cursor, lags: bool) -> None:
        feed = cursor.feed
        if cursor.session.set_behind(cursor, lags):
            feed.lagging += 1 if lags else -1
            if not lags:
                self._windows.trim(feed)
        if not lags:
            self._want(feed)

    def _catch_up(self, cursor: Cursor) -> bool:
        """Sends from the backlog and the window. True if the cursor is at the head then."""
        self._due.look(cursor.session)
        if cursor.past is not None:
            if cursor in self.replays and not self.replays.pump(cursor):
                return False
            if cursor in self.retained and not self.retained.pump(cursor):
                return False
        if cursor.backlog:
            sent = self.sending.some(cursor, cursor.backlog)
            self._due.looked_at(cursor.session, cursor.backlog, sent)
            cursor.backlog = cursor.backlog[sent:] or None
            if cursor.backlog is not None:
                return False
        feed = cursor.feed
        if cursor.next >= feed.head:
            return True
        batch = feed.since(cursor.next)
        if batch is None:
            self._pull_for(cursor)
            return False
        sent = self.sending.some(cursor, batch)
        self._due.looked_at(cursor.session, batch, sent)
        if sent < len(batch):
            return False
        cursor.next = feed.head
        return True

    def _pull_for(self, cursor: Cursor) -> None:
        if not cursor.pulling and (cursor.session.is_worth_reading or not cursor.subscription.qos):
            cursor.pulling = True
            request = Pull(cursor.feed.queue, cursor.next, _OWN_PULL_BYTES, _OWN_PULL_COUNT)
            cursor.feed.broker.submit(request, partial(self._pulled_for, cursor, cursor.next))

    def _pulled_for(self, cursor: Cursor, first: int, result: Result) -> None:
        counts = cursor.is_attached and cursor.next == first  # else what lies between would never be sent
        if counts and not isinstance(result, Pulled):
            self._not_pulled(cursor.feed, cursor, first, result)
            return
        cursor.pulling = False
        if counts and isinstance(result, Pulled):
            cursor.backlog = sound_batch(result.count, result.body, cursor.feed).arrivals or None
            if cursor.backlog is None:
                cursor.next = max(cursor.next, result.next)
        self.pump_later(cursor.session)
