"""Sends unacknowledged messages again when a client is back (MQTT-4.4.0-1).

They go at once, before anything new: the session that was read names them, so no save is needed. They go in pieces, as
the client takes them, so a client that does not read has no more in memory than its output may hold. Large messages are
held without their bytes and read again from their topic's queue. A message that the log no longer has is given up, as
before the CONNACK (``gateway/sessions/resuming.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gateway.delivery.sending import Sending
from gateway.messages.envelope import Arrival
from gateway.messages.outgoing import Blob, blob
from gateway.mqtt.reason_codes import ReasonCode, Told
from gateway.sessions.rereading import Rereading
from gateway.sessions.saver import SessionSaver, sent_as
from gateway.sessions.session import Session
from gateway.sessions.session_state import Sent
from penstock.errors import PenstockError
from penstock.world import Clock

PIECE_BYTES: Final = 256 * 1024

_PUBREL: Final = b"\x62\x02"


class Piece:
    """Messages of a session that go again together.

    Attributes:
        packets: by id, in their order.
        is_read: whether all of them are whole; the others are being read.
        is_awaited: a caller waits until they are.
    """

    def __init__(self, packets: dict[int, Blob]) -> None:
        self.packets = packets
        self.is_read = not self.lacking()
        self.is_awaited = False

    def lacking(self) -> list[int]:
        """Ids of those that are not whole."""
        return [packet_id for packet_id, made in self.packets.items() if not made.is_whole]


class Resending:
    """Resends of one gateway: messages that were sent and not acknowledged when their clients came back."""

    def __init__(self, clock: Clock, saver: SessionSaver, sending: Sending, on_more: Callable[[Session], None]) -> None:
        """``on_more`` gets sessions that may have messages to send, and room."""
        self._clock = clock
        self._saver = saver
        self._sending = sending
        self._on_more = on_more
        self._pieces: dict[Session, Piece] = {}  # that are being read, or have been and wait for their client

    @property
    def in_pieces(self) -> int:
        """The number of sessions that have a piece in memory, or on its way there."""
        return len(self._pieces)

    def begin(self, session: Session) -> None:
        """The client is back: unacknowledged messages are sent again, as far as it takes them."""
        device = session.device
        assert device is not None
        larger = come_back(session, device.accepts_bytes_max)
        self._sending.dropped += larger
        self.go_on(session)
        pubrels = pubrels_of(session)
        if larger:  # whose message may be sent nevermore, wherever the session goes on (MQTT-4.3.3-6)
            self._saver.before(session, b"".join(pubrels))
        else:
            device.send(b"".join(pubrels), len(pubrels))

    def go_on(self, session: Session) -> None:
        """Sends messages that have room now, until the client takes no more or one has to be read first."""
        while session.device is not None and not session.device.is_full:
            piece = self._pieces.get(session) or self._next(session)
            if piece is None or not piece.is_read:
                return
            self.leave(session)
            again = sent_again(session, piece.packets, self._clock.wall_ms())
            session.device.send(b"".join(again), len(again))

    def leave(self, session: Session) -> None:
        """Ends the resending on this connection."""
        self._pieces.pop(session, None)

    def _next(self, session: Session) -> Piece | None:
        """The next message, whole if it could be read at once."""
        ids = next_again(session, PIECE_BYTES)
        if not ids:
            return None
        piece = Piece({packet_id: session.in_flight[packet_id].blob(packet_id) for packet_id in ids})
        if not piece.is_read:
            self._pieces[session] = piece
            self._read(session, piece)
            piece.is_awaited = True
        return piece

    def _read(self, session: Session, piece: Piece) -> None:
        wanted, brokers = [], {}
        for packet_id in piece.lacking():
            arrival = piece.packets[packet_id].arrival.in_its_topic()
            assert arrival.origin is not None
            brokers[arrival.origin.broker.name] = arrival.origin.broker
            wanted.append(sent_as(packet_id, arrival, piece.packets[packet_id].variant))
        on_found, on_read = partial(self._found, piece), partial(self._read_all, session, piece)
        Rereading(brokers, on_found, on_read, sparing=True).begin(wanted)

    def _found(self, piece: Piece, sent: Sent, arrival: Arrival) -> None:
        made = piece.packets[sent.packet_id]
        piece.packets[sent.packet_id] = blob(made.arrival.with_payload(arrival.payload), made.variant, 0)

    def _read_all(self, session: Session, piece: Piece, error: PenstockError | None) -> None:
        device = session.device
        if device is None or self._pieces.get(session) is not piece:
            return  # its connection is over
        if error is not None:
            device.fail(Told(ReasonCode.SERVER_BUSY, error.message))
            return
        piece.is_read = True
        for packet_id in piece.lacking():
            del piece.packets[packet_id]
            if packet_id in session.in_flight:
                session.withdraw(packet_id)
        if piece.is_awaited:
            self._on_more(session)


def come_back(session: Session, bytes_max: int) -> int:
    """Prepares all messages in flight for resending. One that is larger than the client takes by now counts as sent
    (MQTT-3.1.2-25): of QoS 2 the PUBREL is left, because the client may hold the id. Returns their number."""
    larger = [(packet_id, made.qos) for packet_id, made in session.sent() if made.size > bytes_max]
    for packet_id, qos in larger:
        if qos == 1:
            session.acknowledged(packet_id)
        else:
            session.received(packet_id, refused=False)
    session.to_resend = list(session.in_flight) or None
    return len(larger)


def next_again(session: Session, bytes_max: int) -> list[int]:
    """Ids of what is to be sent again and has room now, in its order: the first, and more up to a number of bytes."""
    in_flight = session.in_flight
    waiting = session.to_resend = [packet_id for packet_id in session.to_resend or () if packet_id in in_flight] or None
    room = session.window - len(session.releasing) - len(in_flight) + len(waiting or ())
    found: list[int] = []
    for packet_id in (waiting or ())[: max(0, room)]:
        bytes_max -= in_flight[packet_id].weight
        if found and bytes_max < 0:
            break
        found.append(packet_id)
    return found


def sent_again(session: Session, packets: Mapping[int, Blob], now_ms: int) -> list[bytes]:
    """The packets of the next ids, as far as their messages are still in flight. Whatever their age: a message expires
    only until its delivery has begun (MQTT-3.3.2-5, 4.3.3-7)."""
    session.to_resend = [packet_id for packet_id in session.to_resend or () if packet_id not in packets] or None
    there = [(packet_id, made) for packet_id, made in packets.items() if packet_id in session.in_flight]
    return [blob(one.arrival, one.variant, now_ms).packet(packet_id, dup=True) for packet_id, one in there]


def pubrels_of(session: Session) -> list[bytes]:
    """The PUBRELs of all exchanges that wait for PUBCOMP, in their order."""
    return [_PUBREL + packet_id.to_bytes(2, "big") for packet_id in session.releasing]
