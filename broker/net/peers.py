"""Connections of a node to the other nodes of its group: made, introduced, and made again when they are lost.

On each connection the two sides prove to each other that they have the key of the cluster (docs/formats/replica.md);
then one asks and the other answers. A request never waits here for a connection: without one it is refused.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from penstock.errors import NotAuthorized, PenstockError, ProtocolError, Unavailable
from penstock.protocol import wire
from penstock.protocol.addresses import lost, split_address
from penstock.protocol.link import OnResult
from penstock.protocol.requests.replicas import ReplicaHello, ReplicaWelcome
from penstock.protocol.requests.request import Bytes, Reply, Request
from penstock.service.cluster_secret import is_replica_proof, replica_proof
from penstock.world import Rng, new_secret

CONNECT_S: Final = 2.0
RETRY_S: Final = 0.2
ASK_S: Final = 2.0
"""Another node answers a question within this time, or not at all."""
MEND_S: Final = 0.05
"""Pause before other nodes are asked again for a part of the log."""
DEAD_MS: Final = 5_000
"""What was sent and is not taken by the other machine for so long ends the connection."""
READ_BYTES: Final = 256 * 1024
UNSENT_BYTES_MAX: Final = 64 << 20

_log = logging.getLogger(__name__)


class Introduction(NamedTuple):
    """What a node says of itself. ``address``: of its port for replicas; ``clients``: where clients reach it."""

    cluster: str
    group: str
    node: str
    uuid: str
    address: str
    clients: str
    namesrv: tuple[str, ...]

    def hello(self, nonce: bytes, proof: bytes = b"") -> ReplicaHello:
        """The request that says so."""
        return ReplicaHello(*self, nonce, proof)


class PeerLink:
    """A connection to the node at one address. ``run`` must run in a task.

    Args:
        introduce: what this node says of itself.
        on_met: called when the other side is known, with what it says of itself.
        on_lost: called with the other node's name when the connection has ended.

    Attributes:
        welcome: what the other side has said of itself; None while there is no connection.
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
        self._work = trio.Event()
        self._told = ""  # why the last attempt failed
        self.welcome: ReplicaWelcome | None = None

    def ask(self, request: Request, on_result: OnResult) -> bool:
        """Sends a request; false where there is no connection, or far too much waits already."""
        if self.welcome is None or self._unsent > UNSENT_BYTES_MAX:
            return False
        parts = wire.encode_request(self._next_id, request)
        self._pending[self._next_id] = (type(request), on_result)
        self._next_id += 1
        self._outbox += parts
        self._unsent += sum(map(len, parts))
        self._work.set()
        return True

    async def run(self) -> None:
        """Connects, again and again, until cancelled."""
        while True:
            try:
                with trio.fail_after(CONNECT_S):
                    stream = await self._connect()
            except (OSError, ssl.SSLError, trio.TooSlowError, trio.BrokenResourceError) as error:
                self._tell(f"no connection: {error or 'it takes too long'}")
            else:
                async with stream:
                    await self._use(stream)
            await trio.sleep(RETRY_S * (0.5 + self._rng.random()))

    async def _connect(self) -> trio.abc.Stream:
        host, port = split_address(self.address)
        stream = await trio.open_tcp_stream(host, port)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_MS)
        if self._tls is None:
            return stream
        encrypted = trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)
        try:
            await encrypted.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return encrypted

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            _log.warning("replica at %s: %s", self.address, why)

    async def _use(self, stream: trio.abc.Stream) -> None:
        reader = wire.FrameReader()
        try:
            with trio.fail_after(CONNECT_S):
                self.welcome = await self._introduce_to(stream, reader)
            self._told = ""
            self._on_met(self)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                await self._read(stream, reader)
                nursery.cancel_scope.cancel()
        except* PenstockError as group:
            self._tell(str(group.exceptions[0]))
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            self._tell("the connection was lost")
        finally:
            self._end()

    def _end(self) -> None:
        was_there, self.welcome = self.welcome, None
        waiting, self._pending = self._pending, {}
        self._outbox, self._unsent = [], 0
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
                raise Unavailable("it has closed the connection")
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
    """

    def __init__(self, tasks: trio.Nursery, link: Callable[[str], PeerLink], own: str) -> None:
        self._tasks = tasks
        self._link = link
        self._own = own
        self._links: dict[str, PeerLink] = {}

    def know(self, address: str) -> None:
        """There is, or was, a node at this address."""
        if address and address != self._own and address not in self._links:
            link = self._links[address] = self._link(address)
            self._tasks.start_soon(link.run)

    @property
    def there(self) -> list[PeerLink]:
        """The links that have a connection."""
        return [link for link in self._links.values() if link.welcome is not None]

    def to(self, node: str) -> PeerLink | None:
        """The link to a node, where there is a connection."""
        return next((link for link in self.there if link.welcome and link.welcome.node == node), None)


async def ask(link: PeerLink, request: Request, within_s: float) -> Reply:
    """Sends one request and waits for its reply. Raises ``Unavailable``, and what the other node answers."""
    done, results = trio.Event(), []

    def on_result(result: Reply | PenstockError) -> None:
        results.append(result)
        done.set()

    if link.ask(request, on_result):
        with trio.move_on_after(within_s):
            await done.wait()
    if not results:
        raise Unavailable(f"the replica at {link.address} does not answer")
    if isinstance(results[0], PenstockError):
        raise results[0]
    return results[0]
