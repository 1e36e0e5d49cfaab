"""Saves the state of lasting sessions: before packets that depend on it leave, and otherwise at each tick.

A QoS 2 message, its PUBREL, a SUBACK and an UNSUBACK leave only after the session is durable with them at its home. So
the next owner of the session continues the same exchange after any loss, and the client gets the message once
(MQTT-4.3.3). Everything else (places, QoS 1 exchanges) may be lost with a gateway, and is then only sent again.

A session that is too large to be saved loses its connection. So does one for whose growth the home has no room, if a
packet waits for that; otherwise it is saved later. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gateway.messages.envelope import Arrival
from gateway.messages.outgoing import Variant
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.net.rounds import Stage
from gateway.sessions.endings import Ended, Standing, still_needed
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Session
from gateway.sessions.session_state import Flow, Owed, Place, Sent, encode_flow, encode_terms
from gateway.sessions.store import NO_ROOM, SessionStore
from penstock.errors import PenstockError, TooLarge
from penstock.protocol.requests.sessions import CONNECTED, SessionSave
from topicmap.names import is_share

ENTRIES_PER_TICK: Final = 20_000
"""Sessions, places and messages on their way that one tick writes down: some 20 ms. The others wait for the next."""


class SessionSaver(Stage):
    """The saves of one gateway's sessions. ``eased``: those that were full and are so no more, until they are taken."""

    def __init__(self, home: SessionStore, output_bytes_max: int, wake: Callable[[], None]) -> None:
        """``output_bytes_max``: a session with more than that waiting for a save is full."""
        self._home = home
        self._output_bytes_max = output_bytes_max
        self._wake = wake
        self._urgent: dict[Session, None] = {}
        self._noted: dict[Session, None] = {}
        self.eased: list[Session] = []

    def note(self, session: Session) -> None:
        """Notes a change that may be lost."""
        self._noted[session] = None

    def before(self, session: Session, packets: bytes, told: Callable[[], None] | None = None) -> None:
        """Holds packets until the session's state at the end of this round is durable; a session that is not saved
        sends them at once. ``told`` is called then."""
        lasting = session.lasting
        if lasting is None:
            if session.device is not None:
                session.device.send(packets)
            if told is not None:
                told()
            return
        lasting.unsaved.append(packets)
        lasting.unsaved_bytes += len(packets)
        lasting.is_full = lasting.unsaved_bytes > self._output_bytes_max
        if told is not None:
            lasting.when_saved.append(told)
        self._urge(session)

    def _urge(self, session: Session) -> None:
        if session not in self._urgent:
            self._urgent[session] = None
            self._wake()

    def leave(self, session: Session, state: int, will: bytes, on_lost: Callable[[], None]) -> None:
        """The last save of a session whose connection is over. ``will``: empty leaves it as it is. ``on_lost``: it was
        another's already."""
        self._urgent.pop(session, None)
        self._noted.pop(session, None)
        self._home.let_go(_state_of(session, state, will), on_lost)

    def take_eased(self) -> list[Session]:
        """The sessions that were full and are so no more, since the last call."""
        eased, self.eased = self.eased, []
        return eased

    # ------------------------------------------------------------ rounds and time

    def flush(self) -> None:
        """Saves what something waits for."""
        if self._urgent:
            urgent, self._urgent = self._urgent, {}
            for session in urgent:
                self._save_for(session)
        self._home.flush()

    def tick(self) -> None:
        """Saves what was noted, those first that have waited longest; no more at once than a round can bear."""
        left = ENTRIES_PER_TICK
        for session in list(self._noted):
            if left <= 0:
                break
            del self._noted[session]
            left -= 1 + len(session.overlap.cursors) + len(session.in_flight)
            self._save_for(session)

    def _save_for(self, session: Session) -> None:
        if session.device is None:
            return
        lasting = session.lasting
        assert lasting is not None, "of the others nothing is noted"
        if lasting.is_saving:  # one save with packets at a time: they never overtake each other
            self._noted[session] = None
            return
        self._noted.pop(session, None)
        packets, lasting.unsaved = lasting.unsaved, []
        told, lasting.when_saved = lasting.when_saved, []
        lasting.closes_next = []
        lasting.is_saving = bool(packets)
        save = _state_of(session, CONNECTED, b"")
        self._home.save(save, partial(self._saved, session, bool(save.terms), packets, told))

    def _saved(
        self,
        session: Session,
        had_terms: bool,
        packets: list[bytes],
        told: list[Callable[[], None]],
        outcome: bool | PenstockError,
    ) -> None:
        device, lasting = session.device, session.lasting
        if device is None:
            return
        assert lasting is not None
        if packets:
            lasting.is_saving = False
        if outcome is True:
            self._kept(session, lasting, packets, told)
        elif outcome is False:
            session.lose()
        else:
            lasting.has_new_terms = lasting.has_new_terms or had_terms
            if isinstance(outcome, TooLarge) or (outcome is NO_ROOM and packets):
                # it cannot be kept, never or for who knows how long; what was saved before stands
                device.fail(Told(ReasonCode.QUOTA_EXCEEDED, outcome.message))
                return
            # its fate is unknown, or nothing waits for it: the whole state is saved again with the next tick
            lasting.unsaved[:0] = packets
            lasting.when_saved[:0] = told
            self._noted[session] = None

    def _kept(self, session: Session, lasting: Lasting, packets: list[bytes], told: list[Callable[[], None]]) -> None:
        """Sends the packets that waited for a save."""
        assert session.device is not None
        was_full, data = lasting.is_full, b"".join(packets)
        lasting.unsaved_bytes -= len(data)
        lasting.is_full = lasting.unsaved_bytes > self._output_bytes_max
        session.device.send(data)
        for tell in told:
            tell()
        if lasting.unsaved:
            self._urge(session)
        if was_full and not lasting.is_full:
            self.eased.append(session)
            self._wake()


def _state_of(session: Session, state: int, will: bytes) -> SessionSave:
    terms = flow = b""
    lasting = session.lasting
    if lasting is not None:
        flow = encode_flow(flow_of(session))
        if lasting.has_new_terms:
            lasting.has_new_terms = False
            terms = encode_terms(session.subscriptions.values())
    return SessionSave(session.client_id, session.epoch, state, session.expiry_s, will, terms, flow)


def flow_of(session: Session) -> Flow:
    """Places and open exchanges, as they are, of a session that outlives its connection."""
    lasting = session.lasting
    assert lasting is not None
    places = {
        (cursor.subscription.filter, cursor.feed.broker.name): cursor.place()
        for cursor in session.overlap.cursors
        if cursor.next >= 0 and cursor.subscription.qos and cursor.subscription.filter not in lasting.closing
    }
    places.update(lasting.places)
    sent = []
    for packet_id, made in session.sent():
        arrival, origin = made.arrival, made.arrival.origin
        if origin is None:
            continue
        if origin.filter in lasting.held and origin.filter not in lasting.closing:
            if made.qos == 1 and is_share(origin.filter):  # those go to other members
                continue
        elif origin.is_light:  # its queue has no holder when this is saved and the gateway gone
            arrival = arrival.in_its_topic()
        sent.append(sent_as(packet_id, arrival, made.variant))
    sent += lasting.absent.values()
    owed = _owed_to(session, lasting)
    ended, closing = _ended_of(session, places), tuple(lasting.closing)
    return Flow(places, sent, list(session.releasing), session.next_id, owed, ended, closing)


def sent_as(packet_id: int, arrival: Arrival, form: Variant) -> Sent:
    """The name of a message on its way, by its place."""
    origin = arrival.origin
    assert origin is not None
    queue, topic = ("", "") if origin.is_light else (origin.queue, arrival.name)
    place = origin.filter, origin.broker.name, arrival.offset, queue
    return Sent(packet_id, *place, form.qos, form.retain, form.identifiers, form.shows_place, topic, arrival.position)


def _ended_of(session: Session, places: Mapping[tuple[str, str], Place]) -> tuple[Ended, ...]:
    """The deliveries of subscriptions that the session will not have when it is back, if another one reaches some of
    them from its place: ended ones, and those of QoS 0, which begin again."""
    overlap = session.overlap
    if not overlap.ended and all([cursor.subscription.qos for cursor in overlap.cursors]):
        return ()
    older: dict[str, list[int]] = {}  # by broker, of each of its cursors: how many older ones there will be
    begun: list[Ended | None] = []
    standing: list[Standing] = []
    for cursor in overlap.cursors:
        filter, broker = cursor.subscription.filter, cursor.feed.broker.name
        known = older.setdefault(broker, [0])
        if cursor.subscription.qos:
            place = places.get((filter, broker))
            standing.append(Standing(broker, filter, known[-1], cursor.start - 1 if place is None else place.reached))
        elif cursor.next >= 0:
            begun.append(cursor.ended(known[-1]))
        known.append(known[-1] + (cursor.subscription.qos > 0))
    away: dict[str, int] = {}  # brokers that the session has not come back to
    for (filter, broker), place in places.items():
        if broker not in older:
            standing.append(Standing(broker, filter, away.get(broker, 0), place.reached))
            away[broker] = away.get(broker, 0) + 1
    ended = [one._replace(older=older.get(one.broker, (one.older,))[: one.older + 1][-1]) for one in overlap.ended]
    return tuple(still_needed(ended + [one for one in begun if one is not None], standing))


def _owed_to(session: Session, lasting: Lasting) -> dict[tuple[str, str], Owed]:
    owed = dict(lasting.owed)
    for cursor in session.overlap.cursors:
        if cursor.past is not None and cursor.subscription.qos:
            one = cursor.past.owed()
            if one is not None:
                owed[cursor.subscription.filter, cursor.feed.broker.name] = one
    return owed
