"""The running front: listens, reads commands, runs their flows and writes the answers."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import trio

from penstock.client.wire_link import ask
from penstock.errors import InternalError, InvalidConfig, NotAuthorized, PenstockError, ProtocolError, TimedOut
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.service.accepting import Doorkeeper, PatientListener
from penstock.service.access_files import AccessFiles
from penstock.service.exposure import is_loopback
from penstock.service.frame_connection import Peer
from penstock.service.frame_server import address_of, encrypted, listening_address, open_listeners
from penstock.service.guard import GOODBYE_S, LOGIN_S
from penstock.service.native_journal import NativeJournal
from penstock.service.topic_rate import TopicRate
from penstock.world import World
from remoting import codes
from remoting.calls import Call, Front, refusal
from remoting.clients import leave_empty
from remoting.connection import Connection
from remoting.flows import Flow, Flows, FromClient, Resume
from remoting.frames import Command, FrameReader
from remoting.groups import Groups
from remoting.handlers import handlers
from remoting.logins import SignedLogins
from remoting.members import Members
from remoting.routes import announce
from remoting.settings import RemotingSettings

ANNOUNCE_S: Final = 10.0
LOOK_S: Final = 5.0
CLIENT_ANSWERS_S: Final = 10.0
"""How long a client may take to answer what a tool has asked it."""
CONNECTIONS_MAX: Final = 10_000

_log = logging.getLogger(__name__)


class RunningFront(NamedTuple):
    """A front that listens.

    Attributes:
        host, port: where clients reach the broker.
        names_port: where they ask for routes.
        figures: counters and gauges by metric name.
    """

    host: str
    port: int
    names_port: int
    figures: Callable[[], Mapping[str, float]]

    def reasons(self) -> Sequence[str]:
        """The reasons why it cannot serve: none of its own."""
        return ()


class Server:
    """The front of one broker."""

    def __init__(
        self,
        settings: RemotingSettings,
        name: str,
        world: World,
        port: int,
        nursery: trio.Nursery,
        broker: Link,
        names: Link,
        access: AccessFiles,
    ) -> None:
        """``name``: the broker's. ``nursery``: for what flows wait for. ``broker``, ``names``: the links to both.
        ``access``: users, rules and certificates."""
        self._nursery = nursery
        self._access = access
        self.door = Doorkeeper("the remoting front")
        self._journal = NativeJournal("the remoting front", settings.connection_log)
        self._connections: dict[int, Connection] = {}
        self._last = 0
        self._commands = 0
        self._handlers = handlers()
        self._is_in_round = False  # at its end the requests of flows are sent
        self._run_soon = trio.lowlevel.current_trio_token().run_sync_soon
        self._flows = Flows(broker, names, self._wake, self._flush_soon, self._ask_client)
        self._asked: dict[tuple[int, int], Resume] = {}  # by connection and number of the question
        self._questions = 0
        host, _, told = settings.advertise.rpartition(":")
        host, port = (host, int(told)) if told else (settings.host, port)
        self.front = Front(
            broker=name,
            broker_address=settings.broker,
            host=host,
            port=port,
            address=_eight(host, port),
            clock=world.clock,
            rng=world.rng,
            members=Members(),
            groups=Groups(f"remoting@{name}", self.start),
            start=self.start,
            push=self.push,
            rate=TopicRate(settings.user_topics_per_min_max),
            topics=set(),
        )

    def _flush_soon(self) -> None:
        if not self._is_in_round:
            self._run_soon(self._flows.flush, idempotent=True)

    def _wake(self, seconds: float, resume: Callable[[], None]) -> None:
        async def later() -> None:
            await trio.sleep(seconds)
            resume()

        self._nursery.start_soon(later)

    def _ask_client(self, question: FromClient, resume: Resume) -> None:
        self._questions += 1
        key = question.connection, self._questions
        self._asked[key] = resume
        self.push(question.connection, replace(question.command, opaque=self._questions))
        self._wake(CLIENT_ANSWERS_S, partial(self._client_answered, key, TimedOut("the client did not answer")))

    def _client_answered(self, key: tuple[int, int], result: Command | PenstockError) -> None:
        resume = self._asked.pop(key, None)
        if resume is not None:
            resume(result)

    def start(self, flow: Flow) -> None:
        """Runs a flow in the background."""
        self._flows.run(flow, _note)

    def push(self, connection: int, command: Command) -> None:
        """Sends a command to a connection, if it is still there."""
        found = self._connections.get(connection)
        if found is not None:
            found.put(command)

    def figures(self) -> Mapping[str, float]:
        """Its figures."""
        own = {"remoting_connections": len(self._connections), "remoting_commands_total": self._commands}
        return own | self._access.guard.figures("remoting")

    async def announce(self) -> None:
        """Tells the name server again and again where this front is: it may have been started anew."""
        while True:
            self.start(announce(self.front))
            await trio.sleep(ANNOUNCE_S)

    async def end_silent(self) -> None:
        """Ends connections whose other end has not said anything for long: it may be gone without a word."""
        while True:
            await trio.sleep(LOOK_S)
            now = trio.current_time()
            for connection in self._connections.values():
                if connection.is_silent(now):
                    connection.scope.cancel()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, until it ends."""
        if len(self._connections) >= CONNECTIONS_MAX or not self.door.lets_in(stream):
            await trio.aclose_forcefully(stream)
            return
        self._last += 1
        peer = Peer(self._last, address_of(stream))
        peer = peer._replace(is_private=is_loopback(peer.host))
        found: tuple[trio.abc.Stream, Peer] | None = stream, peer
        if self._access.certificates is not None:
            found = await encrypted(stream, peer, self._access.certificates, self._journal)
        if found is None:
            return
        within, peer = found
        host, _, port = peer.address.rpartition(":")
        logins = SignedLogins(self._access.guard, peer)
        peer_bytes = _eight(host, int(port) if port.isdigit() else 0)  # one that was reset already has no address
        connection = Connection(within, peer, peer_bytes, logins)
        self._connections[connection.number] = connection
        began = trio.current_time()
        self._journal.connected(peer, began)
        try:
            with connection.scope:
                if logins.asks:
                    connection.end_in(LOGIN_S)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, connection)
                    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await self._read(connection)
                    connection.scope.cancel()
        finally:
            del self._connections[connection.number]
            now = trio.current_time()
            self._journal.disconnected(peer, logins.user, now - began, now)
            self.start(leave_empty(self.front, self.front.members.disconnect(connection.number)))
            await connection.close()

    async def _write(self, connection: Connection) -> None:
        try:
            await connection.write()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            connection.scope.cancel()

    async def _read(self, connection: Connection) -> None:
        reader = FrameReader()
        while data := await connection.receive():
            try:
                commands = reader.feed(data)
            except ProtocolError as error:
                _log.info("a remoting client at %s was disconnected: %s", connection.peer.address, error.message)
                return
            connection.begin_round()
            self._is_in_round = True
            for command in commands:
                if command.is_response:
                    self._client_answered((connection.number, command.opaque), command)
                else:
                    self._take(connection, command)
            self._is_in_round = False
            self._flows.flush()
            connection.end_round()

    def _take(self, connection: Connection, command: Command) -> None:
        """Carries out a command whose login succeeds. A login that fails ends the connection, unless one before it has
        succeeded."""
        self._commands += 1
        logins, was_known = connection.logins, connection.logins.is_known
        try:
            permissions = logins.permissions(command)
        except NotAuthorized as error:
            connection.put(refusal(command, error))
            if not was_known:
                connection.end_in(GOODBYE_S)
            return
        if logins.is_known and not was_known:
            connection.end_in(math.inf)
        peer = connection.peer
        call = Call(command, self.front, connection.number, peer.address, connection.peer_bytes, permissions)
        self._carry_out(connection, call)

    def _carry_out(self, connection: Connection, call: Call) -> None:
        handler = self._handlers.get(call.command.code)
        connection.begin()

        def end(result: Command | PenstockError) -> None:
            connection.end()
            if isinstance(result, PenstockError):
                result = refusal(call.command, result)
            if not call.command.is_one_way:
                connection.put(result)

        if handler is None:
            end(call.command.answer(codes.NOT_SUPPORTED, remark=f"request code {call.command.code} is not supported"))
            return
        try:
            result = handler(call)
        except PenstockError as error:
            end(error)
            return
        except Exception as error:  # a fault of ours harms one command, and no connection
            _log.exception("a handler of the remoting front failed")
            end(InternalError(f"the front failed: {type(error).__name__}"))
            return
        if isinstance(result, Command):
            end(result)
            return
        check = call.permissions.check_request if call.permissions is not None else None
        self._flows.run(result, end, check)


def _note(result: object) -> None:
    if isinstance(result, PenstockError):
        _log.debug("a flow of the remoting front ended: %s", result)


def _eight(host: str, port: int) -> bytes:
    """An address as eight bytes; one of IPv6 as zeros, for which there is no room."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return bytes(4) + port.to_bytes(4, "big")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return (mapped.packed if mapped.version == 4 else bytes(4)) + port.to_bytes(4, "big")


async def run(
    settings: RemotingSettings,
    world: World,
    links: Links,
    *,
    task_status: trio.TaskStatus[RunningFront] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs a front until it is cancelled.

    Raises:
        AddressInUse: another process has the port.
    """
    access = AccessFiles(settings, world, None, whose="the RocketMQ port")
    broker = links.link(settings.broker)
    about = await _about(broker)
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners(settings.host, settings.port, "the remoting front")
        names_listeners = await open_listeners(settings.host, settings.namesrv_port, "the remoting front")
        host, port = listening_address(listeners)
        server = Server(settings, about.name, world, port, nursery, broker, links.link(settings.namesrv), access)
        for opened in (listeners, names_listeners):
            patient = [PatientListener(one, server.door) for one in opened]
            nursery.start_soon(partial(trio.serve_listeners, server.serve, patient))
        nursery.start_soon(server.announce)
        nursery.start_soon(server.end_silent)
        nursery.start_soon(access.run)
        nursery.start_soon(access.keep_audit, f"remoting front of {about.name}", links, (settings.namesrv,))
        task_status.started(RunningFront(host, port, listening_address(names_listeners)[1], server.figures))


async def _about(broker: Link) -> ServerInfo:
    """The identity of the broker; waits until it answers."""
    while True:
        with contextlib.suppress(PenstockError):
            return await ask(broker, Ping(), ServerInfo)
        await trio.sleep(1.0)


async def refuse_bypass(broker: Link) -> None:
    """Raises ``InvalidConfig`` where a broker asks for a login: a front that asks for none, and has the key of the
    cluster, would lead past it. ``broker``: a link without a login."""
    await _about(broker)
    try:
        await ask(broker, ReadFigures(), BrokerFigures)
    except NotAuthorized:
        raise InvalidConfig(
            "the broker asks for a login, and this front does not: its clients would come past the users",
            hint="give it the broker's password_file and acl_file, or, where everyone who reaches it may do everything,"
            " set insecure = true",
        ) from None
