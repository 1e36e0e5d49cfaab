"""The form in which a session is sent a message, whether it has room, and whether the message waits for a save.

| message | sent |
|---|---|
| a pulled batch, for subscribers of one kind | as the same bytes for all (``PacketRun``); otherwise one by one |
| QoS 0, for a full output, or larger than the client takes (MQTT-3.1.2-25) | dropped and counted |
| QoS 2, and all behind it | when the session is durable with it (``gateway/sessions/saver.py``) |
| sent before the client came back | at once, as far as it has room |

A session with too much waiting for a save is full. ``gateway/delivery/downstream.py`` decides which messages a cursor
reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.delivery.named_positions import NamedPositions
from gateway.messages.batch import Batch
from gateway.messages.envelope import Arrival
from gateway.messages.mounts import seen_at
from gateway.messages.outgoing import PacketRun, Variant, blob, is_expired
from gateway.sessions.saver import SessionSaver
from gateway.sessions.session import Cursor, Session
from penstock.protocol.trace_context import TraceContext, recorded_id
from penstock.service.histogram import Histogram
from penstock.world import Clock

Runs = dict[tuple[bool, int, bool, int], PacketRun]
"""The shared forms of one batch, by kind of subscriber."""


class DeliverySpans(Protocol):
    """A recorder of traces (``penstock/service/otel_spans.py``)."""

    def delivered(self, name: str, stored: TraceContext, stored_ms: int) -> str:
        """Makes the span of a delivery, from its storing to now, as a child of the span that the message is stored
        with. Returns the trace's id."""
        ...


class Sending:
    """Deliveries of one gateway. ``delivered`` and ``dropped`` count messages."""

    def __init__(
        self, clock: Clock, saver: SessionSaver, positions: NamedPositions, spans: DeliverySpans | None = None
    ) -> None:
        """``spans``: the recorder of traces; ``None`` without one."""
        self._spans = spans
        self._clock = clock
        self._saver = saver
        self._positions = positions
        self.delivered = 0
        self.dropped = 0
        self.waited_s = Histogram()  # since its storing, of the last message of each batch when it is handed out
        self.travelled_s = Histogram()  # the same, since its sending

    def handed_out(self, batch: Batch) -> None:
        """Observes the age of a batch that the readers at the head of a queue have been given."""
        newest = batch.newest
        if newest is not None:
            now_ms = self._clock.wall_ms()
            trace_id = recorded_id(newest.heading.trace)
            if self._spans is not None:
                trace_id = _traced(self._spans, batch, newest) or trace_id
            self.waited_s.observe(max(0, now_ms - newest.stored_ms) / 1000, trace_id)
            self.travelled_s.observe(max(0, now_ms - newest.born_ms) / 1000, trace_id)

    def run(self, cursor: Cursor, batch: Batch, runs: Runs) -> bool:
        """Sends a whole batch in its shared form, if nothing is particular about this subscriber. ``runs``: the forms
        that others have been sent."""
        session, one = cursor.session, cursor.subscription
        device = session.device
        assert device is not None
        if session.is_full or len(session.overlap.cursors) != 1 or cursor.redos or device.tally.mount:
            return False
        if batch.first < cursor.start or batch.first <= max(cursor.seen, session.overlap.ended_until):
            return False
        if one.shows_place or one.counts:  # its packets differ from all others
            return False
        if cursor.doubtful_ms:
            if batch.arrivals[0].stored_ms <= cursor.doubtful_ms:
                return False
            cursor.doubtful_ms = 0
        is_v5 = device.is_v5
        kind = (is_v5, one.qos, one.as_published, one.identifier)
        run = runs.get(kind)
        if run is None:
            run = runs[kind] = PacketRun(batch, is_v5, one.qos, one.as_published, one.identifier)
        if run.expiring or run.largest > device.accepts_bytes_max:
            return False
        if one.no_local and session.client_id_bytes in run.senders:
            return False
        packets = session.send_run(run)
        if packets is None:
            return False
        if not self.waits(session, run.qos, packets):
            packets = packets if device.aliases is None else device.aliases.run(run, cursor.feed.alias_numbers)
            device.send(packets, run.count)
        if batch.first < cursor.first:
            cursor.first = batch.first
        self.delivered += run.count
        device.tally.publications_out += run.count
        return True

    def some(self, cursor: Cursor, batch: Sequence[Arrival]) -> int:
        """Sends messages one by one while there is room; returns how many are dealt with."""
        now_ms = self._clock.wall_ms()
        for done, arrival in enumerate(batch):
            if arrival.offset >= cursor.next:
                if cursor.has_come_to(arrival):
                    cursor.next = arrival.offset + 1
                    continue
                if not self._one(cursor, arrival, now_ms):
                    if cursor in cursor.session.behind:
                        cursor.session.behind[cursor] = True
                    return done
                cursor.next = arrival.offset + 1
                cursor.come_to(arrival.position)
        return len(batch)

    def _one(self, cursor: Cursor, arrival: Arrival, now_ms: int) -> bool:
        """False if there is no room for it now."""
        session = cursor.session
        if cursor.redos and not cursor.is_due(arrival):
            return True
        primary = session.overlap.primary(cursor, arrival)
        if primary is None or is_expired(arrival, now_ms):
            return True
        if primary is not cursor:
            cursor.leave_to(primary, arrival)
            if cursor.subscription.counts:
                self._positions.left(cursor, primary, arrival)
            return True
        if arrival.position < cursor.first:
            cursor.first = arrival.position
        matching = session.overlap.matching(cursor, arrival)
        device = session.device
        assert device is not None
        variant = variant_for(matching, arrival, session.client_id_bytes, device.is_v5)
        if variant is None:
            return True
        if session.is_full:
            self.dropped += variant.qos == 0
            return variant.qos == 0
        return self.as_variant(matching, arrival, variant, now_ms)

    def as_variant(self, matching: Sequence[Cursor], arrival: Arrival, variant: Variant, now_ms: int) -> bool:
        """Sends a message that counts for these cursors in this form; false if there is no room for it now."""
        session = matching[0].session
        device = session.device
        assert device is not None
        if device.tally.mount:
            seen = seen_at(device.tally.mount, arrival)
            if seen is None:
                return True
            arrival = seen
        made = blob(arrival, variant, now_ms)
        if made.size > device.accepts_bytes_max:  # as if it had been sent (MQTT-3.1.2-25)
            self.dropped += 1
            return True
        packet = session.send(made, max([cursor.doubtful_ms for cursor in matching]))
        if packet is None:
            return False
        if not self.waits(session, made.qos, packet):
            device.send(packet if device.aliases is None else device.aliases.shorten(packet, arrival.name_bytes))
        self.delivered += 1
        device.tally.publications_out += 1
        for cursor in matching:
            if cursor.subscription.counts:
                self._positions.sent(cursor, arrival, made.qos, is_own=cursor is matching[0])
        return True

    def waits(self, session: Session, qos: int, packets: bytes) -> bool:
        """Whether packets leave only when the session with them in it is durable; then they are taken over, whole."""
        lasting = session.lasting
        if lasting is None:
            return False
        if qos == 2 or lasting.unsaved or lasting.is_saving:
            self._saver.before(session, packets)
            return True
        if qos:
            self._saver.note(session)
        return False


def _traced(spans: DeliverySpans, batch: Batch, newest: Arrival) -> str:
    """Makes the delivery spans of a batch; returns the id of one of their traces, empty without any. Even messages
    belong to one trace, so the last one stands for all."""
    found = ""
    for arrival in (newest,) if batch.even is not None else batch.arrivals:
        heading = arrival.heading
        if heading.trace.is_sampled:
            found = spans.delivered(heading.name, heading.trace, arrival.stored_ms) or found
    return found


def variant_for(matching: Sequence[Cursor], arrival: Arrival, client_id: bytes, is_v5: bool) -> Variant | None:
    """In which form a session gets a live message that counts for these cursors; ``None``: not at all.

    A *no local* subscription does not count for the client's own messages (MQTT-3.8.3-3).
    """
    if arrival.sender == client_id:
        matching = [cursor for cursor in matching if not cursor.subscription.no_local]
        if not matching:
            return None
    if len(matching) == 1:
        one = matching[0].subscription
        identifiers = (one.identifier,) if one.identifier else ()
        retain = one.as_published and arrival.retain
        return Variant(is_v5, min(one.qos, arrival.qos), retain, identifiers, one.shows_place)
    chosen = [cursor.subscription for cursor in matching]
    return Variant(
        is_v5,
        min(max(one.qos for one in chosen), arrival.qos),
        arrival.retain and any(one.as_published for one in chosen),
        tuple([one.identifier for one in chosen if one.identifier]),
        any([one.shows_place for one in chosen]),
    )
