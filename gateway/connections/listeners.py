"""Listeners: every listening socket, and the limits that a new connection has to pass.

A plain connection becomes a device when it is accepted. One that begins with TLS, HTTP or a load balancer's header is a
``PendingConnection`` until its first byte of MQTT. Both count as half open (``gateway/limits/half_open.py``) and have
the time of a CONNECT (``connect_wait_s``). When a connection ends or becomes a device, only its empty ``Ticket`` waits
for that time.

A connection beyond a limit is closed, unless a half-open one makes room for it. One limit is the number of descriptors
that clients may use (``penstock/service/descriptors.py``). A listener for load balancers accepts connections from their
networks only.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Final

import trio

from gateway.connections.device import Device
from gateway.connections.services import Services
from gateway.login.auth import Peer
from gateway.net.deadlines import Deadlines
from gateway.net.ends import Occupant
from gateway.net.shard import Line, Shard
from gateway.settings import GatewaySettings
from gateway.transports.codec import Codec, Stack
from gateway.transports.listening import DEFAULT_NAME, Listening, is_among, parse_listeners
from gateway.transports.proxy import ProxyCodec
from gateway.transports.tls import TlsCodec
from penstock.errors import InvalidConfig
from penstock.protocol.addresses import cannot_listen, join_address
from penstock.service import descriptors
from penstock.service.buckets import Bucket
from penstock.service.certificates import Certificates
from penstock.service.metrics import with_label

ACCEPTS_PER_ROUND: Final = 32
"""Number of connections that are accepted before the rounds of the shards have their turn: some 4 ms."""
_OUT_OF_DESCRIPTORS_S: Final = 0.1
_MADE_ROOM: Final = descriptors.SPARE // 2
"""Number of further sockets that may be open for a moment, until those that made room for them are closed."""

_log = logging.getLogger(__name__)


class Ticket:
    """Record of an arrival until its time is over: ``arrival`` as long as it waits, ``None`` from then on."""

    __slots__ = ("arrival",)

    def __init__(self, arrival: PendingConnection) -> None:
        self.arrival: PendingConnection | None = arrival


class PendingConnection(Occupant):
    """A connection before its first byte of MQTT; its line's occupant until then."""

    __slots__ = ("_listener", "address", "codec", "counted_as", "line", "ticket")

    def __init__(self, listener: Listener, line: Line, codec: Codec, address: str) -> None:
        self._listener = listener
        self.line = line
        self.codec = codec
        self.address = address
        self.counted_as = address  # that of the client, once a load balancer's header has told it
        self.ticket = Ticket(self)

    def receive(self, chunk: bytes) -> None:
        self._listener.arrived(self, chunk)

    def writable(self) -> None:
        pass

    def broken(self) -> None:
        self._listener.gone(self)

    def drop(self, why: str = "") -> None:
        """It has to make room."""
        self._listener.dropped(self)

    def is_new(self) -> bool:
        return True


class Listener:
    """One listening socket."""

    def __init__(self, listening: Listening, settings: GatewaySettings, services: Services) -> None:
        """Listens. Raises ``AddressInUse`` or ``InvalidConfig``."""
        self.listening = listening
        self._settings = settings
        self._services = services
        self._tally = services.connections.counters.open(
            listening.name, is_lenient=listening.is_lenient, mount=listening.mount
        )
        self._arriving: Deadlines[Ticket] = Deadlines()
        self._waiting = 0
        self._unnamed: dict[PendingConnection, None] = {}  # those of load balancers, counted as theirs so far
        self._peer = Peer("", None, listening.name)
        protocol = "http/1.1" if listening.is_web else "mqtt"
        if listening.is_web:
            import gateway.transports.websocket  # noqa: F401 -- loaded only where it is used, before the first client
        self.certificates = (
            None if listening.files is None else Certificates(listening.files, protocol, f"listener {listening.name}")
        )
        self.socket = open_listener(listening, settings)
        self.host, self.port = self.socket.getsockname()[:2]

    def enter(self, connected: socket.socket, address: str, shard: Shard) -> None:
        """Lets a connection in, or closes it."""
        services, listening = self._services, self.listening
        if not self._may_enter(address):
            self._turn_away(connected)
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_loss(connected, self._settings.tcp_keep_alive_s)
        codec = self._codec()
        line = shard.add(connected, codec)
        if codec is None:
            if address != self._peer.address:  # one for all that come from there one after the other
                self._peer = Peer(address, None, listening.name)
            line.occupant = Device(line, self._peer, services)
            return
        arrival = PendingConnection(self, line, codec, address)
        line.occupant = arrival
        self._waiting += 1
        services.connections.half_opens.enter(address, arrival)
        if listening.proxies:
            self._unnamed[arrival] = None
        else:
            services.connections.crowd.enter(address)
        self._arriving.add(services.rounds.now + self._settings.connect_wait_s, arrival.ticket)

    async def rest(self, wait_s: float) -> None:
        """Pauses accepting: a handshake takes the time of dozens of messages, and its client is unknown yet."""
        self._tally.rests()
        await trio.sleep(wait_s)

    def refuse(self, connected: socket.socket) -> None:
        """Closes a connection for which the process has no descriptor to spare."""
        self._services.quotas.refuse("connections_max")
        self._turn_away(connected)

    def _turn_away(self, connected: socket.socket) -> None:
        self._tally.turned_away()
        connected.close()

    def _may_enter(self, address: str) -> bool:
        services, listening = self._services, self.listening
        present = self._tally.connected + self._waiting
        if listening.connections_max and present >= listening.connections_max:
            services.quotas.refuse("connections_max")
            return False
        limit = self._limit()
        if limit:
            services.quotas.refuse(limit)
            if not services.connections.half_opens.make_room(address) or self._limit():
                return False
        if listening.proxies:
            return is_among(address, listening.proxies)
        if not services.connections.crowd.has_room(address):
            services.quotas.refuse("address_connections_max")
            return False
        return True

    def _limit(self) -> str:
        """The limit that leaves no room for one more, empty if there is room. Those that arrive are half open, but no
        connections of the services yet."""
        services, settings = self._services, self._settings
        if len(services.connections) >= settings.connections_max:
            return "connections_max"
        return "half_open_max" if services.connections.half_open >= settings.half_open_max else ""

    def _codec(self) -> Codec | None:
        listening = self.listening
        if listening.is_plain:
            return None
        codecs: list[Codec] = [ProxyCodec()] if listening.proxies else []
        if self.certificates is not None:
            codecs.append(TlsCodec(self.certificates.context, self._services.rounds.now_ms / 1000))
        if listening.is_web:
            from gateway.transports.websocket import WebSocketCodec

            codecs.append(WebSocketCodec(listening.path, listening.origins))
        return codecs[0] if len(codecs) == 1 else Stack(codecs)

    def _leave(self, arrival: PendingConnection) -> None:
        arrival.ticket.arrival = None
        self._waiting -= 1
        self._services.connections.half_opens.leave(arrival.counted_as, arrival)
        self._unnamed.pop(arrival, None)
        if not self.listening.proxies:
            self._services.connections.crowd.leave(arrival.address)

    def arrived(self, arrival: PendingConnection, chunk: bytes) -> None:
        """The first bytes of MQTT: now it is a device."""
        self._leave(arrival)
        services, codec, line = self._services, arrival.codec, arrival.line
        address = codec.address or arrival.address
        for limit in self._over(address):
            services.quotas.refuse(limit)
            self._tally.turned_away()
            line.close()
            return
        device = Device(line, Peer(address, codec.certificate, self.listening.name, codec.page), services)
        line.occupant = device
        device.receive(chunk)

    def _over(self, address: str) -> list[str]:
        """Limits that have been reached since the connection was let in, or that its true address has reached."""
        services = self._services
        over = ["connections_max"] if len(services.connections) >= self._settings.connections_max else []
        return over if services.connections.crowd.has_room(address) else [*over, "address_connections_max"]

    def gone(self, arrival: PendingConnection) -> None:
        """It ended before it said anything."""
        self._leave(arrival)
        if arrival.codec.over:
            self._tally.handshake_failed()
            self._tell_failed(arrival, arrival.codec.over)

    def dropped(self, arrival: PendingConnection) -> None:
        """It was given up for one of another address."""
        self._leave(arrival)
        self._tally.turned_away()
        arrival.line.close()

    def tick(self, now: float) -> None:
        """Gives up on who arrives too slowly, and looks after the certificates."""
        half_opens = self._services.connections.half_opens
        for newcomer in list(self._unnamed):
            told = newcomer.codec.address
            if told:
                half_opens.leave(newcomer.counted_as, newcomer)
                newcomer.counted_as = told
                half_opens.enter(told, newcomer)
                del self._unnamed[newcomer]
        for ticket in self._arriving.take(now):
            arrival = ticket.arrival
            if arrival is not None:
                self._leave(arrival)
                self._services.quotas.refuse("connect_wait_s")
                self._tally.handshake_failed()
                self._tell_failed(arrival, "it was not over within connect_wait_s")
                arrival.line.close()
        if self.certificates is not None:
            self.certificates.refresh(self._services.rounds.now_ms / 1000)

    def _tell_failed(self, arrival: PendingConnection, why: str) -> None:
        address, services = arrival.codec.address or arrival.address, self._services
        services.connections.journal.handshake_failed(address, self.listening.name, why, services.rounds.now)

    def reload(self) -> None:
        """Reads the certificates again, changed or not."""
        if self.certificates is not None:
            self.certificates.refresh(anyway=True)


class Listeners:
    """All listeners of a gateway. ``host``, ``port``: of the one that the settings of these names make."""

    def __init__(self, settings: GatewaySettings, services: Services, shards: Sequence[Shard]) -> None:
        """Raises ``AddressInUse`` or ``InvalidConfig``."""
        self._shards = shards
        self._half_opens = services.connections.half_opens
        self._turn = 0
        self._troubles: dict[Listener, str] = {}
        self._listeners: list[Listener] = []
        try:
            for one in (
                Listening(DEFAULT_NAME, "tcp", settings.host, settings.port),
                *parse_listeners(settings.listeners),
            ):
                self._listeners.append(Listener(one, settings, services))
        except BaseException:
            self.close()
            raise
        self.host, self.port = self._listeners[0].host, self._listeners[0].port
        self._connections_max = settings.connections_max
        self._accepts_per_s_max = settings.accepts_per_s_max
        self._sockets_max = descriptors.room_for_clients()
        self._is_full = False

    @property
    def further(self) -> dict[str, str]:
        """The further listeners: name -> ``host:port``."""
        return {one.listening.name: join_address(one.host, one.port) for one in self._listeners[1:]}

    async def run(self) -> None:
        """Accepts until cancelled."""
        async with trio.open_nursery() as nursery:
            for one in self._listeners:
                nursery.start_soon(self._accept, one)

    async def _accept(self, listener: Listener) -> None:
        """Accepts many at a time, as fast as it may; out of descriptors it waits rather than spins."""
        pace = Bucket(self._accepts_per_s_max, trio.current_time()) if self._accepts_per_s_max else None
        while True:
            await trio.lowlevel.wait_readable(listener.socket)
            try:
                for _ in range(ACCEPTS_PER_ROUND):
                    connected, address = listener.socket.accept()
                    self._let_in(listener, connected, address[0])
                    self._troubles.pop(listener, "")
                    wait_s = pace.spend(1, trio.current_time()) if pace is not None else 0.0
                    if wait_s:
                        await listener.rest(wait_s)
            except BlockingIOError:
                continue
            except OSError as error:
                self._troubles[listener] = error.strerror or type(error).__name__
                await trio.sleep(_OUT_OF_DESCRIPTORS_S)

    def _let_in(self, listener: Listener, connected: socket.socket, address: str) -> None:
        present = sum(map(len, self._shards))
        if present >= self._sockets_max:
            self._say_full()
            if present >= self._sockets_max + _MADE_ROOM or not self._half_opens.make_room(address):
                listener.refuse(connected)
                return
        listener.enter(connected, address, self._shards[self._turn])
        self._turn = (self._turn + 1) % len(self._shards)

    def _say_full(self) -> None:
        """Clients are sent away although ``connections_max`` would let them in. The log says it once, and again when
        there has been room meanwhile."""
        if not self._is_full:
            self._is_full = True
            _log.warning(
                "clients are sent away: connections_max is %d, but this process may have %d files and sockets open and "
                "lets %d clients in; raise the limit (LimitNOFILE= in systemd, ulimit -n)",
                self._connections_max,
                descriptors.limit(),
                self._sockets_max,
            )

    def trouble(self) -> str:
        """The error that keeps a listener from accepting, empty if there is none."""
        return next(iter(self._troubles.values()), "")

    def tick(self, now: float) -> None:
        """To be called about twice a second."""
        if self._is_full and sum(map(len, self._shards)) < self._sockets_max - self._sockets_max // 8:
            self._is_full = False
        for one in self._listeners:
            one.tick(now)

    def reload(self) -> None:
        """Reads all certificates again, changed or not."""
        for one in self._listeners:
            one.reload()

    def certificates_end_at(self) -> dict[str, float]:
        """The ends of certificates and lists of revoked ones, in seconds since 1970, by metric name."""
        found = {}
        for one in self._listeners:
            if one.certificates is not None:
                for what, ends in (("certificate", one.certificates.ends_at), ("crl", one.certificates.list_ends_at)):
                    if ends is not None:
                        found[with_label(f"gateway_{what}_ends_at_s", "listener", one.listening.name)] = ends
        return found

    def close(self) -> None:
        for one in self._listeners:
            one.socket.close()


def notice_loss(connected: socket.socket, silence_s: int) -> None:
    """Has the system ask a silent peer whether it is still there, so that one that vanished is noticed although it
    agreed on no keep-alive; it is given up after half as long again."""
    if silence_s:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, silence_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, silence_s // 8))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def open_listener(listening: Listening, settings: GatewaySettings) -> socket.socket:
    """A listening socket. Raises ``AddressInUse`` or ``InvalidConfig``."""
    host, port = listening.host, listening.port
    who = "the gateway" if listening.name == DEFAULT_NAME else f"the gateway's listener {listening.name}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
    except socket.gaierror as error:
        raise InvalidConfig(f"the host {host!r} is unknown: {error.strerror}") from None
    except UnicodeError as error:
        raise cannot_listen(host, port, error, who) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.share_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(settings.accept_backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise cannot_listen(host, port, error, who) from None
    return listener
