"""One connected client: what each of its packets does, and what it is sent.

``receive`` takes a chunk of the socket and carries out each complete packet in it, in order. Runs of plain PUBLISH and
PUBACK take the fast path (``gateway/publishing/intake.py``), others the protocol state
(``gateway/mqtt/connection.py``). The device never waits: answers of brokers come back through ``stored``, ``refused``
(``incoming.py``) and the completions of SUBSCRIBE. Promises:

- PUBACK and PUBREC leave only after the record is stored, in the order of the PUBLISHes.
- A SUBSCRIBE or UNSUBSCRIBE is carried out after all earlier publications are stored or refused.
- A QoS 2 id is stored once, however often it is sent (MQTT-4.3.3-10).
- A client with too much unstored or unanswered is not read (``hold_reading``).
- After ``fail`` or ``drop`` nothing more is carried out or sent (MQTT-3.14.4-1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.connections.acknowledging import EXCHANGES, acknowledge
from gateway.connections.authenticating import Authenticating
from gateway.connections.connect_mapping import accepts_bytes_max, arriving, sent_aliases, terms
from gateway.connections.guests import Admitted, Arriving, Grant, OnAdmitted
from gateway.connections.incoming import Incoming
from gateway.connections.journal import CLIENT_CLOSED, DISCONNECT, DROPPED
from gateway.connections.services import Services
from gateway.connections.subscribing import Subscribing, Unsubscribing, send_saved
from gateway.connections.taps import Tap
from gateway.limits.limits import size_of
from gateway.login.auth import Identity, Peer
from gateway.messages.aliases import SentAliases
from gateway.mqtt.connection import ANY_SIZE, Received
from gateway.mqtt.packets import Auth, Connect, Disconnect, Publish, Pubrel, Subscribe, Unsubscribe
from gateway.mqtt.reason_codes import Reason, ReasonCode
from gateway.net.ends import Output
from gateway.publishing.intake import is_partial_publish, plain_pubacks, take_publishes
from penstock.errors import PenstockError
from penstock.protocol.requests.topics import DescribeTopic

_PROGRESS_BYTES: Final = 1024
"""A client that has sent this many bytes of a packet counts as alive, like one that has sent a whole packet
(MQTT-3.1.2-22): it cannot ping within a packet, and a long one takes time on a slow line."""


class Device(Incoming):
    """A connection and, once admitted, its session.

    Attributes:
        heard_at: monotonic time of the last packet from it, or of the last KiB of one that is not complete.
        unstored: bytes of its records that the brokers have not answered for.
        accepts_bytes_max: the largest packet that it takes.
        is_v5: whether it speaks MQTT 5 and so can be told reasons.
        is_over: whether the connection is over.
        named: the client id in its CONNECT, ``None`` before that.
        pace: what it may still send, if that is limited.
        aliases: the topic aliases that it has been sent, if it takes any.
        tally: what goes through its listener.
        tap: follows its packets for an operator.
        full_since: when its output was found full, -1 while it takes something.
    """

    __slots__ = (
        "_authenticating",
        "_holds",
        "_is_midway",
        "_line",
        "_partial",
        "_waits",
        "accepts_bytes_max",
        "aliases",
        "full_since",
        "heard_at",
        "keep_alive_s",
        "named",
        "tap",
    )

    def __init__(self, line: Output, peer: Peer, services: Services) -> None:
        super().__init__(services)
        self._line = line
        self.tap: Tap | None = None
        self._partial = b""
        self._is_midway = False  # in a packet that goes through the protocol state
        self._waits = False  # for the answer to its CONNECT, or its turn to subscribe
        self._holds = 0
        self.peer = peer
        self.named: str | None = None
        self.keep_alive_s = 0
        self.accepts_bytes_max = ANY_SIZE
        self.aliases: SentAliases | None = None
        self._authenticating: Authenticating | None = None
        self.heard_at = services.rounds.now
        self.full_since = -1.0
        self.tally = services.connections.counters.of(peer.listener)
        self.pace = services.pacing.new(self.heard_at)
        services.connections.opened(self)

    # ------------------------------------------------------------ output

    @property
    def is_full(self) -> bool:
        return self._line.is_full

    @property
    def untaken(self) -> int:
        return self._line.unsent

    def send(self, data: bytes, count: int = 1, *, at_once: bool = False) -> None:
        """Sends so many packets. ``at_once``: nothing is added to them in this round."""
        if data and not self.is_over:
            self.tally.bytes_out += len(data)
            self.tally.packets_out += count
            if self.tap is not None:
                rounds = self._services.rounds
                if not self.tap.went(data, rounds.now, rounds.now_ms):
                    self.tap = None
            if at_once:
                self._line.write_now(data)
            else:
                self._line.write(data)

    def writable(self) -> None:
        """The line has room again."""
        self.full_since = -1.0
        if self.session is not None:
            self._services.downstream.pump_later(self.session)

    # ------------------------------------------------------------ input

    def identify(self, identity: Identity) -> None:
        """It is known who it is."""
        self.identity = identity

    def is_new(self) -> bool:
        return self.session is None

    def holdings(self) -> int:
        return len(self.session.subscriptions) if self.session is not None else 0

    def ask_to_make(self, topic: str) -> DescribeTopic | PenstockError:
        identity = self.identity
        assert identity is not None
        now = self._services.rounds.now
        return self._services.creations.take(topic, identity.client_id, identity.user_name, self.peer.address, now)

    def receive(self, chunk: bytes) -> None:
        """Carries out all packets that this chunk completes."""
        services, size = self._services, len(chunk)
        self.tally.bytes_in += size
        if self.tap is not None:
            rounds = services.rounds
            if not self.tap.came(chunk, self.unfinished, rounds.now, rounds.now_ms):
                self.tap = None
        if self._partial:
            chunk, self._partial = self._partial + chunk, b""
        if self.session is not None and not self._is_midway and not self._waits and not self._holds:
            chunk = self._take_straight(chunk)
        unfinished = len(self._partial)
        if chunk and not self.is_over:
            unfinished = self._take(chunk)
        if unfinished < size or unfinished // _PROGRESS_BYTES != (unfinished - size) // _PROGRESS_BYTES:
            self.heard_at = services.rounds.now
        if self.unstored + self.owed > services.room.unstored_bytes_max and not self._is_stuffed:
            self._is_stuffed = True
            self.hold_reading()
        if self.pace is not None and not self.is_over:
            too_fast = services.pacing.spend(self, self.pace, size, services.rounds.now)
            if too_fast:
                self.fail(too_fast)

    @property
    def unfinished(self) -> int:
        return len(self._partial) + self._connection.unfinished_bytes

    def _take_straight(self, chunk: bytes) -> bytes:
        """Takes what can go the straight way off the chunk's beginning; returns the rest."""
        ids = plain_pubacks(chunk) if chunk[0] == 0x40 else None
        if ids is not None:
            self.tally.packets_in += len(ids)
            acknowledge(self, self._services, ids)
            return b""
        spans = self._services.upstream.spans
        if self._routes is None or (spans is not None and spans.draw()):
            return chunk
        assert self.session is not None
        bytes_max = self._services.settings.packet_bytes_max
        while chunk and not self._is_closed():
            room = self.room_for_publications(self.session) if self._services.settings.qos_max else 0
            upstream = self._services.upstream
            at, acknowledged = take_publishes(self, self._routes, self.is_v5, chunk, upstream, room, bytes_max)
            if not at:
                break
            self._unanswered += acknowledged
            chunk = chunk[at:]
        if chunk and is_partial_publish(chunk, bytes_max):
            self._partial = chunk
            return b""
        return chunk

    def _is_closed(self) -> bool:
        """Whether it is over: a question of its own, because an append that is answered at once may end it within a
        call, which the compiler does not see."""
        return self.is_over

    def _take(self, chunk: bytes, *, has_turn: bool = False) -> int:
        """Carries out step by step what this chunk completes, as long as nothing has to wait. How many bytes are
        left."""
        connection = self._connection
        if self._waits:
            connection.keep(chunk)
        elif chunk:
            self._carry_out(connection.receive(chunk), b"" if self._is_midway else chunk)
        while connection.has_more and not self._is_waiting() and not self.is_over:
            has_turn = has_turn or (connection.wants_turn and self._has_turn())
            if has_turn or not connection.wants_turn:
                self._carry_out(connection.receive(b"", has_turn=has_turn))
            has_turn = False
        unfinished = connection.unfinished_bytes
        self._is_midway = unfinished > 0
        return unfinished

    def _has_turn(self) -> bool:
        """Whether a SUBSCRIBE or UNSUBSCRIBE may begin: what its client has published before is in the log. If not it
        waits for that, and then for its turn."""
        if self.unstored or self.kept:
            self._is_behind = True
            self.wait()
            return False
        return self._services.turns.has_room(self)

    def _carry_out(self, received: Received, first: bytes = b"") -> None:
        self.tally.packets_in += len(received.packets)
        for packet in received.packets:
            exchange = EXCHANGES.get(type(packet))
            broken = self._services.limits.broken_by(packet)
            if isinstance(packet, Publish):
                self.on_publish(packet, broken)
            elif broken:
                self.fail(broken)
            elif exchange is not None:
                exchange(self, self._services, packet)
            else:
                _HANDLERS[type(packet)](self, packet)  # type: ignore[operator]
            if self.is_over:
                return
        if received.fault is not None:
            first = b"" if self.named is not None else first
            self.fail(self._services.limits.fault(received.fault, self.session is not None, first))

    # ------------------------------------------------------------ CONNECT

    def _on_connect(self, packet: Connect) -> None:
        asked = arriving(packet, self.tally.mount)
        self.is_v5, self.named = asked.is_v5, packet.client_id
        if asked.authentication_method is not None:
            enter = partial(self._enter, packet)
            self._authenticating = Authenticating(self, self._services, asked, self._connection.auth, enter)
            self._authenticating.begin()
        else:
            self._enter(packet, asked, partial(self._services.connecting.admit, self, asked))

    def _on_auth(self, packet: Auth) -> None:
        assert self._authenticating is not None
        self._authenticating.receive(packet)

    def _enter(self, packet: Connect, asked: Arriving, admit: Callable[[OnAdmitted], None]) -> None:
        """Has the client admitted. What it sends meanwhile waits."""
        self._waits = True
        admit(partial(self._admitted, packet, asked))
        if self._is_waiting():
            self.hold_reading()

    def _is_waiting(self) -> bool:
        """Whether it waits: a question of its own, because an answer that comes at once changes it within a call, which
        the compiler does not see."""
        return self._waits

    def wait(self) -> None:
        self._waits = True
        self.hold_reading()

    def go_on(self, *, has_turn: bool = False) -> None:
        """Carries out packets that came meanwhile."""
        self._waits = False
        self.release_reading()
        try:
            self._take(b"", has_turn=has_turn)
        except Exception:
            self._services.connections.failed(self)

    def accepts(self, asked: Arriving, grant: Grant) -> bool:
        connection, settings = self._connection, self._services.settings
        return connection.takes_any_size or bool(connection.welcome(terms(asked, grant, settings), asked.proof))

    def _admitted(self, packet: Connect, asked: Arriving, outcome: Admitted | Reason) -> None:
        """The answer to the CONNECT is known: says so, then carries out what the client sent without waiting for it."""
        has_waited, self._waits = self._holds > 0, False
        if not isinstance(outcome, Admitted):
            self.fail(outcome)
            return
        session = self.session = outcome.session
        self.identity = outcome.grant.identity
        self.keep_alive_s = outcome.grant.keep_alive_s
        self.accepts_bytes_max = accepts_bytes_max(packet)
        self.aliases = sent_aliases(packet, self._services.settings)
        granted = terms(asked, outcome.grant, self._services.settings, present=outcome.present)
        self.send(self._connection.accept(granted, asked.proof))
        self._services.downstream.attach(session)
        if has_waited:
            self.go_on()

    # ------------------------------------------------------------ the rest

    def _on_filters(self, packet: Subscribe | Unsubscribe) -> None:
        size, services, connection = size_of(packet), self._services, self._connection
        self.owed += size
        answer = partial(send_saved, self, services, partial(self._settled, size))
        if isinstance(packet, Subscribe):
            services.turns.begin(self, Subscribing(self, services, connection, packet, answer))
        else:
            services.turns.begin(self, Unsubscribing(self, services, connection, packet, answer))

    def _settled(self, size: int) -> None:
        """A SUBSCRIBE or UNSUBSCRIBE of so many bytes is answered."""
        self.owed -= size
        self.eased()

    def released(self, packet_id: int) -> None:
        EXCHANGES[Pubrel](self, self._services, Pubrel(packet_id))

    def _on_disconnect(self, packet: Disconnect) -> None:
        why = f"{DISCONNECT} 0x{packet.reason_code:02x}" if packet.reason_code else DISCONNECT
        if self.session is None:  # it gives up its authentication
            self.drop(why)
            return
        expiry_s = packet.properties.session_expiry_interval
        if expiry_s is not None:
            self.session.expiry_s = min(expiry_s, self._services.settings.session_expiry_s_max)
        self._close(b"", why, is_normal=packet.reason_code == ReasonCode.SUCCESS)

    # ------------------------------------------------------------ not reading

    @property
    def waits_to_be_read(self) -> bool:
        return (self._holds > 0 or self._line.is_full) and self._line.has_unread()

    def hold_reading(self) -> None:
        """One more reason not to read from this client."""
        self._holds += 1
        if self._holds == 1 and not self.is_over:
            self._line.set_reading(False)

    def eased(self) -> None:
        if self._is_stuffed and self.unstored + self.owed <= self._services.room.unstored_bytes_max // 2:
            self._is_stuffed = False
            self.release_reading()
        if self._is_behind and not self.unstored and not self.kept:
            self._is_behind = False
            self._services.turns.queue(self)

    def release_reading(self) -> None:
        self._holds -= 1
        if self.unstored + self.owed > self._services.room.unstored_bytes_max and not self._is_stuffed:
            self._is_stuffed = True  # what waited is on its way again, and that is enough
            self._holds += 1
        if self._holds == 0 and not self.is_over:
            self._line.set_reading(True)

    # ------------------------------------------------------------ the end

    @property
    def level(self) -> int:
        return self._connection.level

    def origin(self) -> tuple[str, str]:
        version = {3: "3.1", 4: "3.1.1"}.get(self._connection.level, "5")
        return self.peer.address, f"MQTT {version} {self.peer.listener}"

    def displace(self, reason: Reason, *, ends_session: bool) -> None:
        """Another connection takes over its session."""
        self._close(self._connection.farewell(reason), reason, ends_session=ends_session, is_taken=True)

    def give_up(self) -> None:
        """The client has not logged in in time, or its session could not be handed over in time."""
        if not self._waits:
            self.drop("no CONNECT came within connect_wait_s")
        else:
            self.fail(ReasonCode.SERVER_UNAVAILABLE)

    def fail(self, reason: Reason, *, ends_session: bool = False) -> None:
        """Closes for a reason, told where the version can tell it."""
        farewell = self._connection.farewell(reason, self._services.settings.redirect_to)
        self._close(farewell, reason, ends_session=ends_session)

    def drop(self, why: Reason | str = DROPPED) -> None:
        """Closes without a word to the client."""
        self._close(b"", why)

    def broken(self) -> None:
        """The line is gone."""
        if not self.is_over:
            self.is_over = True
            self._later = None
            self._services.disconnecting.left(self, CLIENT_CLOSED)

    def _close(self, farewell: bytes, why: Reason | str, **how: bool) -> None:
        """``how``: the argument of ``Disconnecting.left``."""
        if self.is_over:
            return
        self.send(farewell)
        self.is_over = True
        self._later = None
        self._line.close()
        self._services.disconnecting.left(self, why, **how)


_HANDLERS: Final = {
    Connect: Device._on_connect,
    Subscribe: Device._on_filters,
    Unsubscribe: Device._on_filters,
    Disconnect: Device._on_disconnect,
    Auth: Device._on_auth,
}
