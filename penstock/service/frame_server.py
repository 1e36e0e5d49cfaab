"""Serves frames on listening sockets: the connection handling that name server and broker share.

One reader and one writer per connection (``frame_connection.py``). All frames of one read are handed to the session as
one batch; all replies that are ready leave with one write. What connections hold is bounded, one by one and together
(``native_room.py``). No peer's bytes, however wrong, reach another connection or end the server: damage in the framing
gets one error frame with id 0, and the connection is closed; a request that is unknown or whose fields are wrong gets
an error, and the connection lives.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

import trio

from penstock.access.policy import Identity
from penstock.errors import Busy
from penstock.protocol import wire
from penstock.protocol.addresses import SOME_SERVER, cannot_listen
from penstock.service.accepting import Doorkeeper, PatientListener
from penstock.service.certificates import Certificates, name_of
from penstock.service.exposure import is_loopback
from penstock.service.frame_connection import FrameConnection
from penstock.service.frame_connection import FrameLimits as FrameLimits
from penstock.service.frame_connection import Peer as Peer
from penstock.service.frame_connection import Session as Session
from penstock.service.guard import Limit
from penstock.service.native_journal import NativeJournal
from penstock.service.native_room import NativeRoom

_LIMITS: Final = FrameLimits()
HANDSHAKE_S: Final = 10.0


class WatchedSession(Session, Protocol):
    """A session that knows who its peer is."""

    @property
    def identity(self) -> Identity:
        """The identity of the peer."""
        ...


class ConnectionWatch(Protocol):
    """Watch between a connection and its session (``guard.py``)."""

    def watch(self, session: Any, peer: Peer, frames: wire.FrameReader, limit: Limit) -> WatchedSession:
        """The session of one connection, watched. ``frames`` cuts its bytes into frames, ``limit`` ends it after a
        number of seconds."""
        ...


async def open_listeners(host: str, port: int, who: str = SOME_SERVER) -> list[trio.SocketListener]:
    """Listening sockets of a server, ``who`` (``"the broker"``), for an address; port 0 takes any free one.

    Raises:
        AddressInUse: the port is taken.
        InvalidConfig: the host is no address of this machine, or the port needs rights that we do not have.
    """
    try:
        return list(await trio.open_tcp_listeners(port, host=host))
    except (OSError, UnicodeError) as error:
        raise cannot_listen(host, port, error, who) from None


def listening_address(listeners: Sequence[trio.SocketListener]) -> tuple[str, int]:
    """Host and port on which the first listener accepts."""
    name = cast("tuple[str, int]", listeners[0].socket.getsockname())
    return name[0], name[1]


async def serve_frames(
    listeners: Sequence[trio.abc.Listener[Any]],
    open_session: Callable[[Peer], Session],
    limits: FrameLimits = _LIMITS,
    door: Doorkeeper | None = None,
    room: NativeRoom | None = None,
    guard: ConnectionWatch | None = None,
    certificates: Certificates | None = None,
    journal: NativeJournal | None = None,
) -> None:
    """Serves every connection until cancelled; closes the listeners and all connections at the end. ``door`` gets the
    errors of accepting; ``room`` bounds what all connections hold together; ``guard`` checks logins and rights; with
    ``certificates`` all of them speak TLS; ``journal`` is their log, None for no lines."""
    door = door or Doorkeeper("this server")
    held, told = room or NativeRoom(), journal or NativeJournal(door.what, "off")
    ids = itertools.count(1)
    live = 0

    async def serve(stream: trio.abc.Stream) -> None:
        nonlocal live
        if live >= limits.connections_max:
            await _refuse(stream, f"this server has its {limits.connections_max} connections")
            return
        if not door.lets_in(stream):
            await _refuse(stream, "this server has no descriptor to spare")
            return
        live += 1
        held.share_among(live)
        try:
            with trio.CancelScope() as scope:
                peer = Peer(next(ids), address_of(stream))
                if certificates is None:
                    peer = peer._replace(is_private=is_loopback(peer.host))
                else:
                    within = await encrypted(stream, peer, certificates, told)
                    if within is None:
                        return
                    stream, peer = within
                frames, session = wire.FrameReader(), open_session(peer)
                guarded = guard.watch(session, peer, frames, partial(_end_in, scope)) if guard is not None else None
                began = trio.current_time()
                told.connected(peer, began)
                try:
                    await FrameConnection(stream, guarded or session, limits, held, frames).serve()
                finally:
                    now = trio.current_time()
                    told.disconnected(peer, guarded.identity.user if guarded else "", now - began, now)
        finally:
            live -= 1
            held.share_among(live)

    await trio.serve_listeners(serve, [PatientListener(one, door) for one in listeners])


def _end_in(scope: trio.CancelScope, wait_s: float) -> None:
    scope.deadline = trio.current_time() + wait_s


async def encrypted(
    stream: trio.abc.Stream, peer: Peer, certificates: Certificates, journal: NativeJournal
) -> tuple[trio.SSLStream[trio.abc.Stream], Peer] | None:
    """The stream within TLS, and its peer with the name in the certificate that it has shown; None if the handshake
    fails, which ends the stream."""
    within = trio.SSLStream(stream, certificates.context, server_side=True, https_compatible=True)
    try:
        with trio.fail_after(HANDSHAKE_S):
            await within.do_handshake()
    except (trio.BrokenResourceError, trio.TooSlowError) as error:
        journal.handshake_failed(peer, error.__cause__, trio.current_time())
        await trio.aclose_forcefully(stream)
        return None
    shown = within.getpeercert()
    ends_s = ssl.cert_time_to_seconds(shown["notAfter"]) if shown else math.inf
    return within, peer._replace(certificate=name_of(shown) or "", ends_s=ends_s)


async def _refuse(stream: trio.abc.Stream, why: str) -> None:
    error = Busy(why, hint="close some or try again later")
    with trio.move_on_after(1.0):
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(wire.join(wire.encode_error(0, error)))
    await trio.aclose_forcefully(stream)


def address_of(stream: trio.abc.Stream) -> str:
    """The peer's address, ``host:port``, of a connection that was just accepted."""
    if not isinstance(stream, trio.SocketStream):
        return "memory"
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer whose host died is noticed in the end
        name = stream.socket.getpeername()
    except OSError:
        return "gone"
    return f"{name[0]}:{name[1]}"
