"""A session while its client is connected: subscriptions, its place in each queue, and open exchanges.

Every subscription has a ``Cursor`` in the light queue of its filter; a message that several filters of a session match
is delivered once, by the oldest of these subscriptions that began before it was stored. Invariants and transitions:
docs/protocols/overlapping-subscriptions.md. The copy has the highest granted QoS and the identifiers of all matching
subscriptions (MQTT-3.3.4-2, -3), and the messages of a topic come in order (MQTT-4.6.0-6).

Offline messages are not here: they are in the log, and a session is only a cursor per queue. One that outlives its
connection (``Lasting``) is saved at its home and goes from here with the connection. What a session does hold is
bounded: at most ``window`` messages and ``window_bytes`` on their way out (shared blobs), at most ``receive_max`` QoS 2
ids on their way in of this connection, and as many again of earlier ones.

Rules kept here: an id is in use until its exchange ends (MQTT-2.2.1-4, 4.3.2-2, 4.3.3-6); nothing beyond the
window is sent (MQTT-3.3.4-9, 4.9.0-2); a resend keeps ids and order and sets DUP (MQTT-4.4.0-1, 4.6.0-1), and what a
lost gateway may have sent has it too (MQTT-3.3.1-1); after PUBREC the message itself is never sent again
(MQTT-4.3.3-6). There is no room for a new message before all that is to be resent has gone. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.brokers import Broker
from gateway.messages.envelope import Arrival
from gateway.messages.feed import Attachable, Feed
from gateway.messages.outgoing import PACKET_ID_MAX, Blob, InFlight, PacketRun
from gateway.mqtt.reason_codes import ReasonCode
from gateway.sessions.endings import ENDED_MAX, Ended, Standing, have_delivered, still_needed, without
from gateway.sessions.inbound import InboundExchanges
from gateway.sessions.lasting import Client, Lasting
from gateway.sessions.matching import Matching, places
from gateway.sessions.session_state import Owed, Past, Place, Will
from gateway.sessions.subscriptions import Redo, Subscription, bounded, is_left

NOWHERE: Final = 1 << 61
"""Behind every log position."""


class Cursor(Attachable):
    """A session's place in the light queue of one of its filters at one broker.

    Attributes:
        next: offset of the next message to look at; -1 while the queue is being opened.
        start: log position from which the subscription counts; messages stored before it do not.
        doubtful_ms: that of its session (``Lasting``), until it has come to a message that was stored later.
        past: retained messages or history that go first: until they are sent it is *held*.
        backlog: messages of its own pull, for a session that has fallen behind the shared window.
        pulling: its own pull is under way.
        seen: log position of the last message that it came to.
        first: log position of the first message that it was to deliver itself, for all that is known.
        skipped: primary -> of the messages left to it that it has not come to: offset of the first, a position before
            that, and position of the last one.
        redos: stretches to go over again; ``back``: log position of the last message that it came to again.
        is_resumed: its subscription stood before this connection of its session, and before ``start`` if that is later.
    """

    __slots__ = (
        "back",
        "backlog",
        "doubtful_ms",
        "feed",
        "first",
        "is_resumed",
        "next",
        "past",
        "pulling",
        "redos",
        "seen",
        "session",
        "skipped",
        "start",
        "subscription",
    )

    def __init__(self, session: Session, subscription: Subscription, feed: Feed[Cursor]) -> None:
        super().__init__()
        self.session = session
        self.subscription = subscription
        self.feed = feed
        self.next = -1
        self.start = 0
        self.doubtful_ms = 0
        self.is_resumed = False
        self.past: Past | None = None
        self.pulling = False
        self.backlog: list[Arrival] | None = None
        self.seen = -1
        self.first = NOWHERE
        self.skipped: dict[Cursor, tuple[int, int, int]] | None = None
        self.redos: list[Redo] | None = None
        self.back = -1

    def is_older(self, other: Cursor) -> bool:
        """Whether it is open and began no later than another one, which is at the same broker. One that is resumed may
        be younger than its subscription, if its broker has closed the filter and opened it again."""
        return self.feed.broker is other.feed.broker and self.next >= 0 and self.start <= other.start

    def left_owed(self, *, is_history: bool, take: bool = False) -> Owed | None:
        """The messages that an earlier connection of the session has left owed here, if they are of this kind.
        ``take``: they are handled now."""
        lasting = self.session.lasting
        place = self.subscription.filter, self.feed.broker.name
        owed = lasting.owed.get(place) if lasting is not None else None
        if lasting is None or owed is None or (owed.start is not None) != is_history:
            return None
        return lasting.owed.pop(place) if take else owed

    @property
    def waits(self) -> bool:
        """Whether it goes on by itself when it is answered."""
        return self.past.waits if self.past is not None else self.pulling and self.backlog is None

    @property
    def reached(self) -> int:
        """Log position up to which it has come to all that it will come to."""
        return self.back if self.redos else self.seen

    def come_to(self, position: int) -> None:
        """It has dealt with a message, and ``next`` is behind it."""
        if self.redos:
            self.back = position
            self.seen = max(self.seen, position)
            self.redos = [redo for redo in self.redos if self.next < redo.until] or None
        else:
            self.seen = position

    def has_passed(self, position: int, name: str) -> bool:
        """Whether it has dealt with a message of its queue."""
        return position <= self.reached or (position <= self.seen and not is_left(self.redos, position, name))

    def leave_to(self, primary: Cursor, arrival: Arrival) -> None:
        """Passes over a message that another cursor delivers."""
        position, offset = arrival.position, arrival.offset
        if primary.has_passed(position, arrival.name):
            return
        if self.skipped is None:
            self.skipped = {}
        first, before, last = self.skipped.get(primary, (0, 0, -1))
        if last <= primary.reached:
            self.skipped[primary] = offset, position - 1, position
        else:
            self.skipped[primary] = min(first, offset), min(before, position - 1), max(last, position)

    def take_back(self, ended: Cursor) -> bool:
        """A primary's subscription has ended. True if this cursor goes back for what was left to it."""
        redos = self._left_to(ended)
        first, before, _ = self.skipped.pop(ended, (0, 0, -1)) if self.skipped else (0, 0, -1)
        if not redos:
            return False
        self.redos, self.back = bounded(self.subscription.filter, [*self.left(), *redos]), min(self.reached, before)
        self.next = min(self.next, first)
        self.backlog = None
        return True

    def _left_to(self, primary: Cursor) -> list[Redo]:
        """The stretches to repeat if a primary does not reach messages that were left to it."""
        last = self.skipped.get(primary, (0, 0, -1))[2] if self.skipped else -1
        if last <= primary.reached:
            return []
        until = max([self.next, *[redo.until for redo in self.redos or ()]])
        filter = primary.subscription.filter
        found = [Redo(until, primary.seen, filter)]
        for redo in primary.left():
            filters = dict.fromkeys((redo.filter, *redo.also, filter))
            del filters[redo.filter]
            found.append(Redo(until, redo.after, redo.filter, tuple(filters)))
        return list(dict.fromkeys(found))

    def left(self) -> list[Redo]:
        """The stretches that it still has to repeat."""
        return [redo._replace(after=max(redo.after, self.back)) for redo in self.redos or ()]

    def place(self) -> Place:
        """The place at which a later connection of the session continues. Messages that were left to others, which have
        not reached them yet, are repeated there, unnoticed."""
        at, redos = self.next, self.left()
        for primary, (first, _, _) in (self.skipped or {}).items():
            more = self._left_to(primary)
            if more:
                redos += more
                at = min(at, first)
        return Place(at, self.start, self.seen, tuple(bounded(self.subscription.filter, redos)))

    def ended(self, older: int) -> Ended | None:
        """The messages that it has delivered, if it ends now. ``older``: how many older ones there are at its
        broker."""
        if self.seen < self.first:
            return None
        left = self.left()
        for primary in self.skipped or ():
            left += self._left_to(primary)
        known = tuple(bounded(self.subscription.filter, left))
        start = max(self.start, self.first)
        return Ended(self.feed.broker.name, self.subscription.filter, start, self.seen, known, older)

    def has_come_to(self, arrival: Arrival) -> bool:
        """Whether it has been at this message before. Only one that damage in the log has moved is at an offset beyond
        its position (docs/decisions/0007), and such a one comes twice. Where a stretch is to be gone over again, all
        of them count as new."""
        return arrival.position <= self.seen and arrival.offset > arrival.position and not self.redos

    def is_due(self, arrival: Arrival) -> bool:
        """Whether a message is to be looked at; within a stretch that is gone over again, only what was left out."""
        redos = [redo for redo in self.redos or () if arrival.offset < redo.until]
        self.redos = redos or None
        return not redos or is_left(redos, arrival.position, arrival.name)


class Overlap:
    """The cursors of one session, oldest first, and which of them match a name: a bit for each, the oldest's first.

    Attributes:
        ended: the deliveries of ended subscriptions, the latest of them; ``ended_until``: log position of the last
            of these messages.
    """

    __slots__ = ("_matching", "cursors", "ended", "ended_until")

    def __init__(self) -> None:
        self.cursors: list[Cursor] = []
        self.ended: Sequence[Ended] = ()
        self.ended_until = -1
        self._matching: Matching | None = None

    def add(self, cursor: Cursor) -> None:
        if cursor.next < 0:  # it is about to be opened, behind all that others have come to
            cursor.start = self._come_to(cursor.feed.broker) + 1
            cursor.redos = cursor.skipped = None
        else:
            cursor.first = cursor.start
        at = len(self.cursors)
        while at and cursor.next >= 0 and not self.cursors[at - 1].is_older(cursor):
            at -= 1
        self.cursors.insert(at, cursor)
        self._matching = None

    def _come_to(self, broker: Broker) -> int:
        """Log position up to which others have come there, at least. Of many subscriptions that are opened together
        each would ask all others: the last one, as long as it is not open, knows it too."""
        last = next((other for other in reversed(self.cursors) if other.feed.broker is broker), None)
        if last is not None and last.next == -1:
            return last.start - 1
        come_to = [one.seen for one in self.ended if one.broker == broker.name]
        come_to += [other.seen for other in self.cursors if other.feed.broker is broker]
        return max(come_to, default=-1)

    def remove(self, cursor: Cursor) -> None:
        """It reaches no more of the messages stored until now: others that lag have to know what it has delivered."""
        broker, older = cursor.feed.broker, self._older(cursor)
        ended = cursor.ended(older)
        if ended is not None and any([other.feed.broker is broker and other is not cursor for other in self.cursors]):
            self.restore([*self.ended, ended])
        self.ended = without(self.ended, broker.name, older)
        self.cursors.remove(cursor)
        self._matching = None

    def restore(self, ended: Sequence[Ended]) -> None:
        """Keeps what is known of ended ones; if that is too much, of those that still count."""
        self.ended = list(ended) if len(ended) <= ENDED_MAX else still_needed(ended, self._standing())
        self.ended_until = max([one.seen for one in self.ended], default=-1)

    def _standing(self) -> list[Standing]:
        """The subscriptions, oldest first. None reaches messages that were stored before it begins."""
        known: dict[str, int] = {}
        found = []
        for cursor in self.cursors:
            broker = cursor.feed.broker.name
            older = known[broker] = known.get(broker, -1) + 1
            found.append(Standing(broker, cursor.subscription.filter, older, max(cursor.start - 1, cursor.reached)))
        return found

    def _older(self, cursor: Cursor) -> int:
        broker, older = cursor.feed.broker, 0
        for other in self.cursors:
            if other is cursor:
                break
            older += other.feed.broker is broker
        return older

    def _is_delivered(self, primary: Cursor, arrival: Arrival) -> bool:
        """Whether one that has ended, and was older than its primary now, has delivered a message."""
        broker = primary.feed.broker.name
        return have_delivered(self.ended, broker, self._older(primary), arrival.position, arrival.name)

    def _candidates(self, name: str) -> int:
        if self._matching is None:
            self._matching = Matching([cursor.subscription.filter for cursor in self.cursors])
        return self._matching.bits(name)

    def primary(self, cursor: Cursor, arrival: Arrival) -> Cursor | None:
        """The first of ``matching``, which every cursor asks for that comes to a message; only one asks for all. None
        also where one that has ended has delivered it."""
        broker, position, cursors = cursor.feed.broker, arrival.position, self.cursors
        if len(cursors) == 1 and position > self.ended_until:
            return cursor if position >= cursor.start else None
        left = self._candidates(arrival.name)
        while left:
            other = cursors[(left & -left).bit_length() - 1]
            if other.next >= 0 and position >= other.start and other.feed.broker is broker:
                return None if position <= self.ended_until and self._is_delivered(other, arrival) else other
            left &= left - 1
        return None

    def matching(self, cursor: Cursor, arrival: Arrival) -> Sequence[Cursor]:
        """The session's cursors that this message of ``cursor``'s queue counts for, oldest first. Behind them those of
        QoS 0 that stood when it was stored, while the client was away: nothing came to their queues then, but the copy
        has their identifiers too (MQTT-3.3.4-4)."""
        if len(self.cursors) == 1:
            return self.cursors if arrival.position >= cursor.start else ()
        broker, position = cursor.feed.broker, arrival.position
        bits = self._candidates(arrival.name)
        candidates = [other for at in places(bits) if (other := self.cursors[at]).feed.broker is broker]
        found = [other for other in candidates if other.next >= 0 and position >= other.start]
        if found:
            found += [
                other
                for other in candidates
                if other.is_resumed and not other.subscription.qos and (other.next < 0 or position < other.start)
            ]
        return found


def _are_all(in_flight: dict[int, InFlight], ids: Sequence[int]) -> bool:
    """Whether these are the ids of all that is in flight, in its order, and all of it has QoS 1."""
    return list(in_flight) == list(ids) and all([made.qos == 1 for made in set(in_flight.values())])


# Nearly all sessions have none of these, nearly always: one empty dict for all of them. Who adds makes its own.
_NONE_BEHIND: Final[dict[Cursor, bool]] = {}
_NONE_RELEASING: Final[dict[int, None]] = {}


class Session(InboundExchanges):
    """The state of one client id."""

    __slots__ = (
        "behind",
        "client_id",
        "client_id_bytes",
        "device",
        "epoch",
        "expiry_s",
        "in_flight",
        "in_flight_bytes",
        "is_sharing",
        "lasting",
        "next_id",
        "overlap",
        "releasing",
        "settled",
        "subscriptions",
        "to_resend",
        "will",
        "window",
        "window_bytes",
    )

    def __init__(
        self,
        client_id: str,
        window: int,
        window_bytes: int = 1 << 62,
        epoch: int = 0,
        expiry_s: int = 0,
        will: Will | None = None,
        lasting: Lasting | None = None,
    ) -> None:
        super().__init__()
        self.client_id = client_id
        self.client_id_bytes = client_id.encode()
        self.device: Client | None = None
        self.expiry_s = expiry_s
        self.epoch = epoch
        self.lasting = lasting
        self.subscriptions: dict[str, Subscription] = {}
        self.overlap = Overlap()
        self.behind = _NONE_BEHIND  # whether what it has next was not sent for want of room
        self.window = window
        self.window_bytes = window_bytes
        self.in_flight: dict[int, InFlight] = {}
        self.in_flight_bytes = 0
        self.to_resend: list[int] | None = None  # ids in flight that this connection has not been sent yet
        self.releasing = _NONE_RELEASING
        self.is_sharing = False  # it is a member of a shared subscription
        self.settled: dict[object, Callable[[Blob], None]] | None = None  # callbacks for messages that the client has
        self.next_id = 1
        self.will = will

    def attach(self, device: Client) -> None:
        """Its client has a connection."""
        self.device = device

    def detach(self) -> None:
        """Its connection is over."""
        self.device = self.will = None

    def clear(self) -> None:
        """It goes from here. Its cursors know it, and it them: in this circle what is in flight would wait for the
        collector; and with what waits for a save that never comes its device would, with all that it has read."""
        self.overlap, self.in_flight, self.settled = Overlap(), {}, None
        if self.lasting is not None:
            self.lasting.unsaved, self.lasting.when_saved = [], []

    def lose(self) -> None:
        """It belongs to another gateway: its client here gets a DISCONNECT, and the session stays untouched."""
        if self.device is not None:
            self.will = None
            if self.lasting is not None:
                self.lasting.lose()
            self.device.displace(ReasonCode.SESSION_TAKEN_OVER, ends_session=False)

    def note_terms(self) -> None:
        """Notes that subscriptions have changed: they are saved, if the session is."""
        if self.lasting is not None:
            self.lasting.has_new_terms = True

    # ------------------------------------------------------------ out: gateway -> client

    @property
    def is_full(self) -> bool:
        """Whether it takes no more deliveries for now: it has no connection, the client takes no more output, or too
        much waits for the session to be durable."""
        device, lasting = self.device, self.lasting
        return device is None or device.is_full or (lasting is not None and lasting.is_full)

    def set_behind(self, cursor: Cursor, lags: bool) -> bool:
        """Whether a cursor lags by now. True if that is new."""
        behind = self.behind
        if lags == (cursor in behind):
            return False
        if lags:
            self.behind = behind or {}
            self.behind[cursor] = False
        else:
            del behind[cursor]
            self.behind = behind or _NONE_BEHIND  # an emptied dict stays as large as it was
        return True

    def room(self) -> int:
        """The number of further QoS 1 and 2 messages that may be sent now: none before all resends have gone."""
        return 0 if self.to_resend else self.window - len(self.in_flight) - len(self.releasing)

    @property
    def is_worth_reading(self) -> bool:
        """Whether there may be room for messages that are read for it alone: those without room stay in memory."""
        return not self.is_full and self.in_flight_bytes < self.window_bytes

    @property
    def has_no_room(self) -> bool:
        """Whether no message of QoS 1 or 2 can be sent, so that a look at waiting ones is of no use."""
        return self.room() <= 0 or not self.is_worth_reading

    def _free_id(self) -> int:
        packet_id = self.next_id
        while packet_id in self.in_flight or packet_id in self.releasing or self._is_absent(packet_id):
            packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        self.next_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        return packet_id

    def _is_absent(self, packet_id: int) -> bool:
        return self.lasting is not None and packet_id in self.lasting.absent

    def send(self, made: Blob, doubtful_ms: int = 0) -> bytes | None:
        """The packet of a delivery, entered as in flight; ``None`` when the window is full. It has DUP if it may have
        been sent before, which holds for messages stored until ``doubtful_ms``: with QoS 1 only, because a QoS 2
        message is sent only after it was saved."""
        if not made.qos:
            return made.head
        if self.room() <= 0 or (self.in_flight and self.in_flight_bytes + made.weight > self.window_bytes):
            return None
        self.in_flight_bytes += made.weight
        packet_id = self._free_id()
        self.in_flight[packet_id] = made.sent()
        return made.packet(packet_id, dup=made.qos == 1 and made.arrival.stored_ms <= doubtful_ms)

    def send_run(self, run: PacketRun) -> bytes | None:
        """All packets of a run, entered as in flight; ``None`` where the window has no room or an id is in use."""
        ids = run.in_flight
        if ids:
            if self.in_flight_bytes + run.weight > self.window_bytes:
                return None
            if len(ids) > self.room():
                return None
            for taken in (self.releasing, self.in_flight):
                if taken and not taken.keys().isdisjoint(ids):
                    return None
            if self.lasting is not None and self.lasting.absent and not self.lasting.absent.keys().isdisjoint(ids):
                return None
            self.in_flight.update(ids)
            self.in_flight_bytes += run.weight
        return run.data

    @property
    def is_waiting(self) -> bool:
        """Whether room that it gains may be of use at once."""
        return bool(self.behind) or self.is_sharing or bool(self.to_resend)

    def sent(self) -> list[tuple[int, Blob]]:
        """Packet id and packet of each message in flight, in their order."""
        return [(packet_id, made.blob(packet_id)) for packet_id, made in self.in_flight.items()]

    def relocate(self, packet_id: int, made: Blob) -> None:
        """A message in flight is found in its topic's queue from now on: the one that it came through may go before
        its exchange is complete (MQTT-3.10.4-3)."""
        found = made.moved()
        self.in_flight_bytes += found.weight - self.in_flight[packet_id].weight
        self.in_flight[packet_id] = found

    def withdraw(self, packet_id: int) -> None:
        """A message in flight is not this session's any more."""
        self.in_flight_bytes -= self.in_flight.pop(packet_id).weight

    def acknowledged(self, packet_id: int) -> bool:
        """PUBACK. False if nothing of QoS 1 is in flight under this id."""
        return self._settle(packet_id, 1)

    def tell_settled(self, who: object, tell: Callable[[Blob], None]) -> None:
        """From now on ``tell`` gets each message that the client has; one callback of each ``who``."""
        if self.settled is None:
            self.settled = {}
        self.settled[who] = tell

    def _settle(self, packet_id: int, qos: int) -> bool:
        """The client has the message of this id. False if none of this QoS is in flight under it."""
        made = self.in_flight.get(packet_id)
        if made is None or made.qos != qos:
            return False
        del self.in_flight[packet_id]
        self.in_flight_bytes = self.in_flight_bytes - made.weight if self.in_flight else 0
        if self.settled is not None:
            for tell in self.settled.values():
                tell(made.blob(packet_id))
        return True

    def acknowledged_all(self, ids: Sequence[int]) -> None:
        """PUBACKs, in their order; ids that are not in flight are passed over."""
        if self.settled is not None:
            for packet_id in ids:
                self.acknowledged(packet_id)
            return
        in_flight, weight = self.in_flight, 0
        if 1 < len(ids) == len(in_flight) and _are_all(in_flight, ids):
            in_flight.clear()
        else:
            for packet_id in ids:
                made = in_flight.get(packet_id)
                if made is not None and made.qos == 1:
                    del in_flight[packet_id]
                    weight += made.weight
        self.in_flight_bytes = self.in_flight_bytes - weight if in_flight else 0

    def received(self, packet_id: int, refused: bool) -> bool:
        """PUBREC. From now on the exchange waits for PUBCOMP, or has ended if the client refused the message
        (MQTT-4.3.3-4). False if the id is unknown."""
        if not self._settle(packet_id, 2):
            return packet_id in self.releasing and not refused
        if not refused:
            self.releasing = self.releasing or {}
            self.releasing[packet_id] = None
        return True

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP. False if the id is unknown."""
        return self.releasing.pop(packet_id, 0) is None

    def exchange(self, packet_id: int, qos: int) -> str:
        """The exchange in its message, if it outlives the connection; empty for others."""
        return f"{self.lasting.generation}:{self.epoch}:{packet_id}" if qos == 2 and self.lasting is not None else ""
