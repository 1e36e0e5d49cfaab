"""Connections of a node to the other nodes of its group: opened, authenticated, and opened again when they are lost.

On each connection both sides prove that they have the key of the cluster (docs/formats/replica.md); then one side asks
and the other answers. A request without a connection is refused at once.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import trio

from penstock.client.credentials import no_tls
from penstock.direct import DirectSocket
from penstock.errors import NotAuthorized, PenstockError, ProtocolError, Unavailable
from penstock.protocol import wire
from penstock.protocol.addresses import lost, split_address
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import SPEAKS, SPEAKS_FROM, ReplicaHello, ReplicaWelcome
from penstock.protocol.requests.request import Bytes, Reply, Request
from penstock.service.cluster_secret import is_replica_proof, replica_proof
from penstock.world import Rng, new_secret

CONNECT_S: Final = 2.0
GREET_MAX_S: Final = 16.0
"""The nodes have ``CONNECT_S`` to prove who they are, and twice as long after each time that this took too long, up to
this: both may hardly get their turn."""
RETRY_S: Final = 0.2
ASK_S: Final = 2.0
"""Another node answers a question within this time, or not at all."""
MEND_S: Final = 0.05
"""Pause before other nodes are asked again for a part of the log."""
DEAD_MS: Final = 5_000
"""A connection ends if the other machine takes no sent bytes for this long."""
READ_BYTES: Final = 256 * 1024
UNSENT_BYTES_MAX: Final = 64 << 20
TRIES: Final = 30
"""Attempts after which the address of a node is forgotten that is no member any more."""
_HINT: Final = "give all nodes certificates of one authority (tls_certificate, peers_tls_ca), or none TLS"
_CLOSED: Final = "it has closed the connection; where it speaks TLS, set peers_tls_ca"
_CLOSED_TLS: Final = "it has closed the connection; is this node's certificate of the authority that it knows?"

_log = logging.getLogger(__name__)


class Introduction(NamedTuple):
    """The introduction of a node. ``address``: of its port for replicas; ``clients``: its address for clients."""

    cluster: str
    group: str
    node: str
    uuid: str
    address: str
    clients: str
    namesrv: tuple[str, ...]

    def hello(self, nonce: bytes, proof: bytes = b"") -> ReplicaHello:
        """The request that says so."""
        return ReplicaHello(*self, nonce, proof, SPEAKS, SPEAKS_FROM)


class PeerLink:
    """A connection to the node at one address. ``run`` must run in a task.

    Args:
        introduce: what this node says of itself.
        on_met: called when the other side is known, with its introduction.
        on_lost: called with the other node's name when the connection has ended.

    Attributes:
        welcome: what the other side has said of itself; None while there is no connection.
        attempts: how many have failed since there was one.
    """

    def __init__(
        self,
        address: str,
        introduce: Callable[[], Introduction],
        secret: bytes,
        rng: Rng,
        on_met: Callable[[PeerLink], None],
        on_lost: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._introduce = introduce
        self._secret = secret
        self._rng = rng
        self._on_met = on_met
        self._on_lost = on_lost
        self._tls = tls
        self._pending: dict[int, tuple[type[Request], OnResult]] = {}
        self._outbox: list[Bytes] = []
        self._unsent = 0
        self._next_id = 1
        self._direct: DirectSocket | None = None
        self._work = trio.Event()
        self._greet_s = CONNECT_S
        self._told = ""  # why the last attempt failed
        self._is_given_up = False
        self.welcome: ReplicaWelcome | None = None
        self.attempts = 0

    def give_up(self) -> None:
        """Ends the attempts."""
        self._is_given_up = True

    def ask(self, request: Request, on_result: OnResult) -> bool:
        """Sends a request; false where there is no connection, or far too much waits already."""
        if self.welcome is None or self._unsent > UNSENT_BYTES_MAX:
            return False
        parts = wire.encode_request(self._next_id, request)
        self._pending[self._next_id] = (type(request), on_result)
        self._next_id += 1
        if self._direct is not None and not self._unsent:
            parts = self._send_now(wire.join(parts))
        if parts:
            self._outbox += parts
            self._unsent += sum(map(len, parts))
            self._work.set()
        return True

    def _send_now(self, data: Bytes) -> list[Bytes]:
        """Gives the socket as much as it takes, before this node syncs the sent entries; returns the rest."""
        assert self._direct is not None
        sent = self._direct.send(data)
        return [memoryview(data)[sent:]] if sent < len(data) else []

    async def run(self) -> None:
        """Connects, again and again, until cancelled or given up."""
        while not self._is_given_up:
            self.attempts += 1
            try:
                stream = await self._connect()
            except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
                self._be_patient(error)
                self._tell(f"no connection: {self._flaw(error) or str(error) or 'it takes too long'}")
            else:
                async with stream:
                    await self._use(stream)
            await trio.sleep(RETRY_S * (0.5 + self._rng.random()))

    async def _connect(self) -> trio.abc.Stream:
        host, port = split_address(self.address)
        with trio.fail_after(CONNECT_S):
            stream = await trio.open_tcp_stream(host, port)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_MS)
        if self._tls is None:
            return stream
        encrypted = trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)
        try:
            with trio.fail_after(self._greet_s):
                await encrypted.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return encrypted

    def _be_patient(self, error: BaseException) -> None:
        if isinstance(error, trio.TooSlowError):
            self._greet_s = min(2 * self._greet_s, GREET_MAX_S)

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            _log.warning("replica at %s: %s", self.address, why)

    @property
    def _closed(self) -> str:
        """The reason why the other node may have closed the connection instead of an answer."""
        return _CLOSED if self._tls is None else _CLOSED_TLS

    def _flaw(self, error: BaseException) -> str:
        """The fault in TLS with the other node; empty if that is not the cause."""
        cause = error.__cause__
        if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError):
            return ""
        found = no_tls(self.address, cause, _HINT)
        return f"{found.message}: {found.hint}"

    async def _use(self, stream: trio.abc.Stream) -> None:
        reader = wire.FrameReader()
        try:
            with trio.fail_after(self._greet_s):
                self.welcome = await self._introduce_to(stream, reader)
            self._told = ""
            self._greet_s = CONNECT_S
            self.attempts = 0
            self._direct = DirectSocket.of(stream.socket) if isinstance(stream, trio.SocketStream) else None
            self._on_met(self)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                await self._read(stream, reader)
                nursery.cancel_scope.cancel()
        except* PenstockError as group:
            self._tell(str(group.exceptions[0]))
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as group:
            error = group.exceptions[0]
            self._be_patient(error)
            was_reset = isinstance(error, trio.BrokenResourceError)
            refusal = self._closed if was_reset and self.welcome is None else ""
            self._tell(self._flaw(error) or refusal or "the connection was lost")
        finally:
            self._end()

    def _end(self) -> None:
        was_there, self.welcome = self.welcome, None
        waiting, self._pending = self._pending, {}
        self._outbox, self._unsent = [], 0
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        for _, on_result in waiting.values():
            on_result(lost(self.address, "it has ended"))
        if was_there is not None:
            self._on_lost(was_there.node)

    async def _introduce_to(self, stream: trio.abc.Stream, reader: wire.FrameReader) -> ReplicaWelcome:
        """Both sides prove that they have the key. Raises ``PenstockError``."""
        mine, own = self._introduce(), new_secret()
        first = await self._greet(stream, reader, mine.hello(own))
        nonces = own, first.nonce
        proof = replica_proof(self._secret, True, nonces, mine.node, mine.uuid)
        second = await self._greet(stream, reader, mine.hello(own, proof))
        if not is_replica_proof(second.proof, self._secret, False, nonces, second.node, second.uuid):
            raise NotAuthorized(f"{self.address} has not shown that it has the key of the cluster")
        return second

    async def _greet(self, stream: trio.abc.Stream, reader: wire.FrameReader, hello: ReplicaHello) -> ReplicaWelcome:
        await stream.send_all(wire.join(wire.encode_request(self._next_id, hello)))
        self._next_id += 1
        while True:
            data = await stream.receive_some(READ_BYTES)
            if not data:
                raise Unavailable(self._closed)
            for frame in reader.receive(data):
                result = wire.decode_result(frame, ReplicaHello)
                if isinstance(result, PenstockError):
                    raise result
                assert isinstance(result, ReplicaWelcome)
                return result

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            parts, self._outbox = self._outbox, []
            await stream.send_all(wire.join(parts))
            self._unsent -= sum(map(len, parts))

    async def _read(self, stream: trio.abc.Stream, reader: wire.FrameReader) -> None:
        while data := await stream.receive_some(READ_BYTES):
            for frame in reader.receive(data):
                waiting = self._pending.pop(frame.request_id, None)
                if waiting is not None:
                    asked, on_result = waiting
                    try:
                        on_result(wire.decode_result(frame, asked))
                    except ProtocolError as error:
                        on_result(error)
                elif frame.request_id == 0:
                    raise wire.last_word(frame)


class Peers:
    """All connections of a node, one for each address that it has heard of.

    Args:
        tasks: where the connections run.
        link: makes the connection to an address.
        own: this node's address.
        lasting: addresses that are tried for ever.
    """

    def __init__(
        self, tasks: trio.Nursery, link: Callable[[str], PeerLink], own: str, lasting: Collection[str] = ()
    ) -> None:
        self._tasks = tasks
        self._link = link
        self._own = own
        self._lasting = frozenset(lasting)
        self._links: dict[str, PeerLink] = {}
        for one in lasting:
            self.know(one)

    def know(self, address: str) -> None:
        """Notes an address at which a node is, or was."""
        if address and address != self._own and address not in self._links:
            link = self._links[address] = self._link(address)
            self._tasks.start_soon(link.run)

    def forget_all_but(self, addresses: Collection[str]) -> None:
        """Gives up what cannot be reached at other addresses than these and those that the settings name."""
        for address, link in list(self._links.items()):
            if address not in addresses and address not in self._lasting and link.attempts > TRIES:
                link.give_up()
                del self._links[address]

    @property
    def there(self) -> list[PeerLink]:
        """The links that have a connection."""
        return [link for link in self._links.values() if link.welcome is not None]

    def to(self, node: str) -> PeerLink | None:
        """The link to a node, where there is a connection."""
        return next((link for link in self.there if link.welcome and link.welcome.node == node), None)


class Asked:
    """A request that was sent on a link, where there is a connection, and waits for its reply."""

    def __init__(self, link: PeerLink, request: Request) -> None:
        self._link = link
        self._done = trio.Event()
        self._result: Reply | PenstockError | None = None
        self._is_sent = link.ask(request, self._on_result)

    def _on_result(self, result: Reply | PenstockError) -> None:
        self._result = result
        self._done.set()

    async def reply(self, within_s: float) -> Reply:
        """The reply. Raises ``Unavailable``, and what the other node answers."""
        if self._is_sent:
            with trio.move_on_after(within_s):
                await self._done.wait()
        if self._result is None:
            raise Unavailable(f"the replica at {self._link.address} does not answer")
        if isinstance(self._result, PenstockError):
            raise self._result
        return self._result


async def ask(link: PeerLink, request: Request, within_s: float) -> Reply:
    """Sends one request and waits for its reply. Raises ``Unavailable``, and what the other node answers."""
    return await Asked(link, request).reply(within_s)
