"""Shared subscriptions of one gateway: ``$share/GROUP/FILTER``, and ``$oshare/...`` with the order of each key.

Each broker divides its messages of a share among the gateways with members. A gateway takes as many as its members have
room for, and reports when they are settled:

| message | settled |
|---|---|
| QoS 0 | when it is sent |
| QoS 1 | with its PUBACK of any code (MQTT-4.8.2-6); given back when the connection ends |
| QoS 2 | when the session is saved with it (MQTT-4.8.2-4, -5), or with PUBREC if the session is not kept |

Retained messages are not sent. A broker that is away gets no requests; a member waits for the others only. Requests
leave at the round's end, one at a time of each kind for each share. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gateway.brokers import Broker, Brokers
from gateway.delivery.filter_leases import OnDone, PendingSubscription, answers, portions
from gateway.delivery.share_feed import DONE, NO_ROOM, SENT, TOO_LARGE, Leased, ShareFeed
from gateway.messages.envelope import Arrival, Origin, arrivals
from gateway.messages.mounts import seen_at
from gateway.messages.outgoing import Blob, Variant, blob, is_expired
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from gateway.settings import GatewaySettings
from penstock.errors import InvalidMessage, PenstockError, QueueNotFound
from penstock.protocol.message import ENTRY
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.messages import Pulled
from penstock.protocol.requests.request import Result
from penstock.protocol.requests.shares import SettleShared, TakeShared
from penstock.world import Clock

HEARTBEAT_S: Final = 3.0
OFFSETS_PER_REQUEST: Final = 2_000

SendAs = Callable[[Sequence[Cursor], Arrival, Variant, int], bool]


_Opening = dict[tuple[Broker, str], dict[str, list[PendingSubscription]]]


class SharedSubscriptions:
    """All of one gateway. ``owner`` is its name in this life, for the leases of messages too: one of the same name that
    died may have some yet. The lease of its open shares is renewed with that of its filters
    (``gateway/delivery/filter_leases.py``). ``settled``, ``returned`` and ``dropped`` (too large for every member)
    count messages; ``send_as`` sends a message to a session; ``on_opening`` gets the shares that are opened at a
    broker, with their owner."""

    def __init__(
        self,
        brokers: Brokers,
        owner: str,
        settings: GatewaySettings,
        clock: Clock,
        send_as: SendAs,
        wake: Callable[[], None],
        on_opening: Callable[[Broker, str, Sequence[str]], None],
    ) -> None:
        self._owner = self.taker = owner
        self._settings = settings
        self._clock = clock
        self._send_as = send_as
        self._wake = wake
        self._brokers: list[Broker] = []
        self._shares: dict[str, dict[Session, Subscription]] = {}
        self._feeds: dict[tuple[Broker, str], ShareFeed] = {}
        self._by_origin: dict[Origin, ShareFeed] = {}
        self._of: dict[Session, dict[str, None]] = {}
        self._opening: _Opening = {}
        self._closing: dict[ShareFeed, None] = {}
        self._changed: dict[ShareFeed, None] = {}
        self._failed: dict[ShareFeed, None] = {}
        self._unheld: dict[ShareFeed, dict[Session, None]] = {}  # members in whose names it is not open there yet
        self._not_taken: list[ShareFeed] = []
        self._beaten_at = 0.0
        self._on_opening = on_opening
        self.settled = 0
        self.returned = 0
        self.dropped = 0
        brokers.on_new(self._add_broker)

    def __len__(self) -> int:
        return len(self._shares)

    def members_of(self, share: str) -> int:
        """How many sessions of this gateway are members of a share."""
        return len(self._shares.get(share, ()))

    def brokers(self) -> dict[Broker, None]:
        """The brokers where this gateway has messages of a share."""
        return {feed.broker: None for feed in self._feeds.values()}

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, session: Session, subscription: Subscription, on_done: OnDone | None) -> None:
        """A session becomes a member; ``on_done`` gets the error of a broker that answers, if any."""
        share = subscription.filter
        self._shares.setdefault(share, {})[session] = subscription
        self._of.setdefault(session, {})[share] = None
        session.is_sharing = True
        session.tell_settled(self, self._acknowledged)
        lasting = session.lasting
        if lasting is not None and subscription.qos:
            lasting.held[share] = None
            lasting.closing.pop(share, None)
        live = [broker for broker in self._brokers if broker.address] or self._brokers
        asked = len(live) * len(self._owners_of(session, subscription, ""))
        pending = None if on_done is None else PendingSubscription(asked, on_done)
        for broker in self._brokers:
            feed = self._feed(broker, share)
            feed.join(session, subscription)
            if broker not in live:
                self._failed[feed] = None
                self._unheld.setdefault(feed, {})[session] = None
                continue
            for owner in self._owners_of(session, subscription, broker.name):
                waiting = self._opening.setdefault((broker, owner), {}).setdefault(share, [])
                if pending is not None:
                    waiting.append(pending)
        self._wake()

    def _owners_of(self, session: Session, subscription: Subscription, broker: str) -> tuple[str, ...]:
        """In whose names a share is open at a broker: the gateway's, and that of a session which outlives it."""
        lasting = session.lasting
        if lasting is None or not subscription.qos:
            return (self._owner,)
        return self._owner, lasting.holder(broker)

    def resume(self, session: Session, subscription: Subscription) -> None:
        """A subscription that was saved stands again; what its session has of the share is not for others."""
        self.subscribe(session, subscription, None)
        for _, made in session.sent():
            origin = made.arrival.origin
            if origin is not None and origin.filter == subscription.filter and made.qos == 2:
                feed = self._feed(origin.broker, origin.filter)
                feed.to_settle[made.arrival.offset] = None
                self._change(feed)

    def unsubscribe(self, session: Session, share: str) -> None:
        """A session is no member any more; exchanges that have begun go on (MQTT-3.10.4-3)."""
        self._leave(session, share)

    def _leave(self, session: Session, share: str) -> None:
        members = self._shares.get(share, {})
        members.pop(session, None)
        if not members:
            self._shares.pop(share, None)
        self._of.get(session, {}).pop(share, None)
        session.is_sharing = bool(self._of.get(session))
        if not session.is_sharing:
            self._of.pop(session, None)
        for broker in self._brokers:
            feed = self._feeds.get((broker, share))
            if feed is not None:
                feed.leave(session)
                self._unheld.get(feed, {}).pop(session, None)
                if not feed.members:
                    self._unheld.pop(feed, None)
                    feed.give_up_waiting()
                    self._closing[feed] = None
                self._change(feed)

    def let_go(self, lasting: Lasting, share: str) -> None:
        """A session needs a share no longer in its own name: what the next round would open must not come behind its
        close."""
        for broker in self._brokers:
            for pending in self._opening.get((broker, lasting.holder(broker.name)), {}).pop(share, ()):
                pending.answered(None)

    def part(self, session: Session, *, ends: bool) -> None:
        """The connection of a session is over, and its last state is about to be saved if it goes on here: messages
        that it did not get go to others, except QoS 2 messages that it may have got, and those that it kept when it
        released a share: their exchanges continue (MQTT-3.10.4-3). It is unknown yet whether that save arrives, so only
        messages of earlier saves are settled: what it was to keep from that one on is sent to others and to it."""
        lasting = session.lasting
        goes_on = lasting is not None and not ends and not lasting.is_lost
        left = lasting.closing if lasting is not None and goes_on else ()
        back: dict[ShareFeed, list[int]] = {}
        for packet_id, made in session.sent():
            feed, offset = self._feed_of(made)
            if feed is None or offset not in feed.sent:
                continue
            origin = made.arrival.origin
            if (made.qos == 2 and lasting is None) or (goes_on and origin is not None and origin.through is not None):
                feed.settle(offset)
                self._change(feed)
                continue
            if made.qos == 2 or feed.share not in left:  # of a lasting session one of QoS 2 has not left yet
                session.withdraw(packet_id)
            back.setdefault(feed, []).append(offset)
        for feed, offsets in back.items():
            feed.give_back(offsets)
            self._change(feed)
        for share in list(self._of.get(session, ())):
            self._leave(session, share)

    def stir(self, session: Session) -> None:
        """A session may have room again."""
        for share in self._of.get(session, ()):
            for broker in self._brokers:
                feed = self._feeds.get((broker, share))
                if feed is not None:
                    feed.stir(session)
                    self._change(feed)

    # ------------------------------------------------------------ feeds

    def _feed(self, broker: Broker, share: str) -> ShareFeed:
        feed = self._feeds.get((broker, share))
        if feed is None:
            feed = self._feeds[broker, share] = ShareFeed(broker, share)
            self._by_origin[feed.origin] = feed
        return feed

    def _feed_of(self, made: Blob) -> tuple[ShareFeed | None, int]:
        """The share that brought a message, and its offset there."""
        origin, offset = made.arrival.origin, made.arrival.offset
        if origin is not None and origin.through is not None:
            origin, offset = origin.through
        return None if origin is None else self._by_origin.get(origin), offset

    def _change(self, feed: ShareFeed) -> None:
        self._changed[feed] = None
        self._wake()

    def _add_broker(self, broker: Broker) -> None:
        self._brokers.append(broker)
        for share, members in self._shares.items():
            for session, subscription in members.items():
                self._feed(broker, share).join(session, subscription)
                for owner in self._owners_of(session, subscription, broker.name):
                    self._opening.setdefault((broker, owner), {}).setdefault(share, [])
        self._wake()

    # ------------------------------------------------------------ rounds

    def flush(self) -> bool:
        """Does what was noted since the last round. True if there is more to do at once."""
        if not (self._closing or self._opening or self._changed):
            return False
        closing, self._closing = self._closing, {}
        for feed in closing:
            if not feed.members:
                feed.is_open = False
                feed.broker.submit(CloseFilters(self._owner, (feed.share,)), _ignore)
        while self._opening:  # an answer may take back what is still to be opened
            broker, owner = next(iter(self._opening))
            shares = self._opening.pop((broker, owner))
            if owner == self._owner:
                for share in [one for one in shares if one not in self._shares]:  # its close is sent already
                    for pending in shares.pop(share):
                        pending.answered(None)
            names = list(shares)
            self._on_opening(broker, owner, names)
            for first, end in portions(names):
                some = {share: shares[share] for share in names[first:end]}
                broker.submit(OpenFilters(owner, tuple(some)), partial(self._opened, broker, owner, some))
        changed, self._changed = self._changed, {}
        for feed in changed:
            self._serve(feed)
        return bool(self._changed)

    def _serve(self, feed: ShareFeed) -> None:
        if feed.waiting or feed.aside:
            self.dropped += feed.deliver(partial(self._send, feed))
        self._report(feed)
        count = feed.wanted(self._settings.pull_count_max)
        if count or (feed.is_unsure and not feed.is_taking):
            feed.is_taking = True
            resumes = feed.must_resume
            since, held = self._resume(feed) if resumes else (0, ())
            wait_s = self._settings.pull_wait_s if count else 0.0
            request = TakeShared(feed.share, self.taker, count, wait_s, resumes, held, since)
            feed.broker.submit(request, partial(self._taken, feed))
        elif feed.is_idle:
            if self._feeds.get((feed.broker, feed.share)) is feed:  # else members have come meanwhile, to another one
                del self._feeds[feed.broker, feed.share]
            self._by_origin.pop(feed.origin, None)
            self._failed.pop(feed, None)
            self._changed.pop(feed, None)

    def _resume(self, feed: ShareFeed) -> tuple[int, tuple[int, ...]]:
        """Says what is ours, a range of offsets with each request; what the last one has to say yet, and since which
        offset. It goes the same way behind the others."""
        since, held = 0, sorted(set(feed.resume()))
        while len(held) > OFFSETS_PER_REQUEST:
            told, held = tuple(held[:OFFSETS_PER_REQUEST]), held[OFFSETS_PER_REQUEST:]
            request = TakeShared(feed.share, self.taker, 0, 0.0, True, told, since, held[0])
            feed.broker.submit(request, partial(self._resumed, feed))
            since = held[0]
        return since, tuple(held)

    def _report(self, feed: ShareFeed) -> None:
        if feed.to_return and not feed.returning:
            feed.returning, feed.to_return = feed.to_return, {}
            self.returned += len(feed.returning)
            request = SettleShared(feed.share, self.taker, (), tuple(feed.returning))
            feed.broker.submit(request, partial(self._has_returned, feed))
        if feed.to_settle and not feed.settling:
            feed.settling, feed.to_settle = feed.to_settle, {}
            self.settled += len(feed.settling)
            request = SettleShared(feed.share, self.taker, tuple(feed.settling))
            feed.broker.submit(request, partial(self._has_settled, feed))

    def _opened(self, broker: Broker, owner: str, shares: dict[str, list[PendingSubscription]], result: Result) -> None:
        for (share, waiting), answer in zip(shares.items(), answers(result, shares), strict=True):
            is_ours = owner == self._owner
            feed = self._feeds.get((broker, share))
            error = answer if isinstance(answer, PenstockError) else None
            if feed is not None and feed.members and error is None and is_ours:
                feed.is_open = True
                self._change(feed)
            for pending in waiting:
                pending.answered(error)
            if error is not None and error.retryable and not waiting and is_ours and share in self._shares:
                self._failed[self._feed(broker, share)] = None  # no other code waits for it and asks again

    def _resumed(self, feed: ShareFeed, result: Result) -> None:
        if isinstance(result, PenstockError):
            feed.must_resume = feed.is_unsure = True  # all is said again when the last one is answered

    def _taken(self, feed: ShareFeed, result: Result) -> None:
        if isinstance(result, Pulled):
            feed.is_taking = False
            feed.arrive(_leased(result, feed))
            if not feed.members:
                feed.give_up_waiting()
            self._change(feed)
        elif isinstance(result, QueueNotFound):
            feed.is_taking = False
            feed.lost()
            if feed.members:
                self._opening.setdefault((feed.broker, self._owner), {}).setdefault(feed.share, [])
            self._change(feed)
        else:
            feed.must_resume = feed.is_unsure = True
            self._not_taken.append(feed)

    def _has_returned(self, feed: ShareFeed, result: Result) -> None:
        returning, feed.returning = feed.returning, {}
        if isinstance(result, PenstockError) and result.retryable:
            feed.to_return = returning | feed.to_return
            self._failed[feed] = None
        else:
            self._change(feed)

    def _has_settled(self, feed: ShareFeed, result: Result) -> None:
        settling, feed.settling = feed.settling, {}
        if isinstance(result, PenstockError) and result.retryable:
            feed.to_settle = settling | feed.to_settle
            self._failed[feed] = None
        elif feed.to_settle or feed.is_idle:
            self._change(feed)

    # ------------------------------------------------------------ members

    def _send(self, feed: ShareFeed, cursor: Cursor, arrival: Arrival) -> int:
        """Sends a message to a member if it has room for it."""
        session, subscription = cursor.session, cursor.subscription
        device = session.device
        now_ms = self._clock.wall_ms()
        if is_expired(arrival, now_ms):
            return DONE
        if device is None or session.is_full:
            return NO_ROOM
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        retain = subscription.as_published and arrival.retain
        qos = min(subscription.qos, arrival.qos)
        variant = Variant(device.is_v5, qos, retain, identifiers, subscription.shows_place)
        if device.tally.mount and seen_at(device.tally.mount, arrival) is None:
            return DONE
        if blob(arrival, variant, now_ms).size > device.accepts_bytes_max:
            return TOO_LARGE
        if not self._send_as([cursor], arrival, variant, now_ms):
            return NO_ROOM
        if qos == 2 and session.lasting is not None:
            session.lasting.when_saved.append(partial(self._is_saved, feed, arrival.offset))
        return SENT if qos else DONE

    def _is_saved(self, feed: ShareFeed, offset: int) -> None:
        feed.settle(offset)
        self._change(feed)

    def _acknowledged(self, made: Blob) -> None:
        feed, offset = self._feed_of(made)
        if feed is not None:
            feed.settle(offset)
            self._change(feed)

    # ------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Renews the leases of messages, repeats failed requests, and gives back messages that no member here has room
        for; about twice a second."""
        self._ask_again()
        for feed in self._feeds.values():
            if feed.waiting:
                feed.give_up_waiting()
                self._change(feed)
        if now - self._beaten_at >= HEARTBEAT_S:
            self._beaten_at = now
            for broker in self.brokers():
                broker.submit(SettleShared("", self.taker), _ignore)

    def _ask_again(self) -> None:
        """Repeats failed requests at brokers that are present."""
        not_taken, self._not_taken = self._not_taken, []
        for feed in not_taken:
            feed.is_taking = False
            self._failed[feed] = None
        for feed in [feed for feed in self._failed if feed.broker.address]:
            del self._failed[feed]
            if feed.members and not feed.is_open:
                self._opening.setdefault((feed.broker, self._owner), {}).setdefault(feed.share, [])
            self._change(feed)
        for feed in [feed for feed in self._unheld if feed.broker.address]:
            for session in self._unheld.pop(feed):
                pending = PendingSubscription(1, partial(self._held, feed, session))
                for owner in self._owners_of(session, feed.members[session].subscription, feed.broker.name)[1:]:
                    self._opening.setdefault((feed.broker, owner), {}).setdefault(feed.share, []).append(pending)

    def _held(self, feed: ShareFeed, session: Session, error: PenstockError | None) -> None:
        if error is not None and error.retryable and session in feed.members:
            self._unheld.setdefault(feed, {})[session] = None


def _leased(result: Pulled, feed: ShareFeed) -> list[Leased]:
    try:
        got = arrivals(result.count, result.body, feed.origin)
    except InvalidMessage:
        return []  # a broker that frames its replies wrongly; nothing of it can be believed
    keys = [row[3] for row in ENTRY.iter_unpack(bytes(result.body[: result.count * ENTRY.size]))]
    return [Leased(arrival, key) for arrival, key in zip(got, keys, strict=True)]


def _ignore(result: Result) -> None:
    """A lost heartbeat is made good by the next one, a lost close by the lease."""
