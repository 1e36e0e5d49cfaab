"""One connection to one server on a plain blocking socket, for scripts and Spark executors.

It keeps the socket, an incomplete frame, and which requests wait for a reply; it connects at the first call and again
after a loss, which fails all that waited. ``call`` is all that most need; ``submit`` and ``receive`` leave long polls
open between calls. It is not for several threads at once. Every wait has a deadline. It imports no event loop.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar, TypeVarTuple

from penstock.client.arguments import check_wait
from penstock.client.credentials import Credentials, credentials_of, login_refused, login_step, lost_unheard, no_tls
from penstock.client.following import CopiesOf, leader_of, next_copy
from penstock.client.retry import TIMEOUT_S, patience_s
from penstock.errors import InvalidConfig, PenstockError, TimedOut, Unavailable
from penstock.protocol import wire
from penstock.protocol.addresses import lost, no_server, split_address
from penstock.protocol.requests.request import Bytes, Reply, Request, Result
from penstock.protocol.requests.servers import LoginStep
from penstock.world import Clock, RealClock

_READ_BYTES_MAX: Final = 1024 * 1024
_UNKNOWN: Final = "whether a write was stored is unknown"

_R = TypeVar("_R", bound=Reply)
_Ts = TypeVarTuple("_Ts")


class BlockingLink:
    """Request and reply over one connection.

    Args:
        address: ``host:port``.
        timeout_s: deadline of a call that names none, connecting included; the wait of a long poll comes on top.
        credentials: for the login of each connection; left out: those of the environment.
        leader_at: the link to the leader of this server's group, by its address: requests go on there that this server
            has refused because it does not lead.
        copies_of: addresses of the servers with a copy of this one's log: where one cannot be reached, the next is
            tried.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = TIMEOUT_S,
        *,
        clock: Clock | None = None,
        credentials: Credentials | None = None,
        leader_at: Callable[[str], BlockingLink] | None = None,
        copies_of: CopiesOf | None = None,
    ) -> None:
        check_wait("timeout_s", timeout_s)
        self.address = address
        self.timeout_s = timeout_s
        self._host, self._port = split_address(address)
        self._credentials = credentials_of() if credentials is None else credentials
        self._clock = clock or RealClock()
        self._leader_at = leader_at
        self._copies_of = copies_of
        self._socket: socket.socket | None = None
        self._frames = wire.FrameReader()
        self._asked: dict[int, type[Request]] = {}
        self._arrived: dict[int, Result] = {}
        self._next_id = 1
        self._is_heard = False  # whether the server has answered anything on this connection
        self.losses = 0  # connections that ended; what was submitted on one of them gets no result

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection and forgets what waited for a reply; the next call would make a new one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
            self._frames = wire.FrameReader()
            self.losses += 1
        self._asked.clear()
        self._arrived.clear()

    def call(self, request: Request, timeout_s: float | None = None) -> Reply:
        """The reply to one request.

        Args:
            request: what to ask.
            timeout_s: the deadline, connecting included; without one the link's, and a long poll's wait on top.

        Raises:
            TimedOut: the deadline passed first; the outcome of a write is unknown.
            Unavailable: no connection, or it was lost; ``unknown`` says whether a write may have been stored.
            PenstockError: what the server answered.
        """
        result = self.call_many([request], timeout_s)[0]
        if isinstance(result, PenstockError):
            raise result
        return result

    def ask(self, request: Request, kind: type[_R], timeout_s: float | None = None) -> _R:
        """``call`` for a caller that names the type of the reply."""
        reply = self.call(request, timeout_s)
        assert isinstance(reply, kind), f"{type(request).__name__} is answered by {kind.__name__}"
        return reply

    def call_many(
        self, requests: Sequence[Request], timeout_s: float | None = None, *, follows: bool = True
    ) -> list[Result]:
        """The result of each request, sent with one write under one deadline. ``follows``: requests that this server
        refuses because it does not lead go on to the leader, once.

        Raises ``TimedOut``, ``Unavailable`` and ``ProtocolError`` for all of them; other errors are results, also of a
        request that cannot be sent.
        """
        limit_s = max((patience_s(request, timeout_s, self.timeout_s) for request in requests), default=0.0)
        deadline = self._clock.monotonic() + limit_s
        ids = self.submit(requests, limit_s)
        while not self._arrived.keys() >= set(ids):
            self._guarded(self._read, deadline)
        results = [self._arrived.pop(request_id) for request_id in ids]
        return self._followed(requests, results, deadline) if follows else results

    def _followed(self, requests: Sequence[Request], results: list[Result], deadline: float) -> list[Result]:
        refused: dict[BlockingLink, list[int]] = {}
        for at, result in enumerate(results):
            if link := self.leader_of(result):
                refused.setdefault(link, []).append(at)
        for link, places in refused.items():
            left_s = max(0.0, deadline - self._clock.monotonic())
            try:
                answers = link.call_many([requests[at] for at in places], left_s, follows=False)
            except PenstockError as error:
                answers = [error.as_result()] * len(places)
            for at, answer in zip(places, answers, strict=True):
                results[at] = answer
        return results

    def leader_of(self, result: Result) -> BlockingLink | None:
        """The link to the leader, where a result says that this server does not lead; else None."""
        leader = leader_of(result, self.address)
        try:
            return self._leader_at(leader) if leader and self._leader_at is not None else None
        except InvalidConfig:  # the hint is no address
            return None

    def submit(self, requests: Sequence[Request], timeout_s: float | None = None) -> list[int]:
        """Sends requests with one write and waits for no reply: ``receive`` will tell them by these ids. The result of
        a request that cannot be sent is at hand at once."""
        ids = list(range(self._next_id, self._next_id + len(requests)))
        self._next_id += len(ids)
        parts: list[Bytes] = []
        sent: dict[int, type[Request]] = {}
        refused: dict[int, Result] = {}
        for at, request in zip(ids, requests, strict=True):
            try:
                parts += wire.encode_request(at, request)
                sent[at] = type(request)
            except PenstockError as error:
                refused[at] = error.as_result()
        if sent:
            deadline = self._clock.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
            self._guarded(self._send, wire.join(parts), deadline)
        self._asked.update(sent)
        self._arrived.update(refused)
        return ids

    def send_only(self, request: Request) -> None:
        """Sends a request whose reply is passed over. Raises ``Unavailable``."""
        data = wire.join(wire.encode_request(self._next_id, request))
        self._next_id += 1
        with contextlib.suppress(PenstockError):  # a new connection is made
            self._guarded(self._take_in)
        self._guarded(self._send, data, self._clock.monotonic() + self.timeout_s)

    def _take_in(self) -> None:
        """Reads received bytes, so that replies without a waiting caller do not pile up."""
        if self._socket is not None:
            ready = select.poll()
            ready.register(self._socket, select.POLLIN)
            while ready.poll(0) or self._has_decoded():
                self._read(self._clock.monotonic() + self.timeout_s)

    def _has_decoded(self) -> bool:
        """Whether TLS holds bytes that the socket does not show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def receive(self, wait_s: float) -> dict[int, Result]:
        """Results of submitted requests by their ids: those at hand, else the first within ``wait_s`` seconds."""
        if not self._arrived and self._socket is not None:
            self._guarded(self._read, self._clock.monotonic() + wait_s, in_time=False)
        return self.take_arrived()

    def take_arrived(self) -> dict[int, Result]:
        """Results that are at hand; reads nothing."""
        arrived, self._arrived = self._arrived, {}
        return arrived

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def fileno(self) -> int:
        """For ``selectors``; -1 where there is no connection."""
        return -1 if self._socket is None else self._socket.fileno()

    # -- one connection

    def _guarded(self, work: Callable[[*_Ts], None], *given: *_Ts, in_time: bool = True) -> None:
        """Runs a step of the connection; a failure ends it, for half a frame may be under way."""
        try:
            work(*given)
        except TimedOut as error:
            if in_time:
                self.close()
                raise self._turn(error) from None
        except OSError as error:
            self.close()
            raise self._lost(error.strerror or str(error)) from None
        except BaseException:
            self.close()
            raise

    def _lost(self, reason: str) -> PenstockError:
        return lost(self.address, reason) if self._is_heard else lost_unheard(self.address, reason, self._credentials)

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimedOut(f"{self.address} did not answer in time", hint=_UNKNOWN)
        return left

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is None:
            left = self._left(deadline)
            try:
                self._socket = self._connect(left)
            except TimeoutError:
                raise self._turn(Unavailable(f"no connection to {self.address} in time")) from None
            except ssl.SSLError as error:
                raise self._turn(no_tls(self.address, error)) from None
            except OSError as error:
                raise self._turn(no_server(self.address, error)) from None
            self._is_heard = False
            self._log_in(self._socket, deadline)
            self._is_heard = self._credentials.logs_in
        return self._socket

    def _turn(self, error: PenstockError) -> PenstockError:
        """Makes the next connection one to another copy, if there is one. Returns ``error``, to be raised."""
        if self._copies_of is not None:
            self.address = next_copy(self.address, self._copies_of(self.address))
            self._host, self._port = split_address(self.address)
        return error

    def _connect(self, left: float) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), left)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._credentials.tls is None:
            return connection
        return self._credentials.tls.wrap_socket(connection, server_hostname=self._host)

    def _log_in(self, connection: socket.socket, deadline: float) -> None:
        """Logs in, if there are credentials. Raises ``NotAuthorized``, ``Unavailable``."""
        if not self._credentials.logs_in:
            return
        steps = self._credentials.steps(self._host)
        try:
            request = next(steps)
            while True:
                connection.settimeout(self._left(deadline))
                connection.sendall(wire.join(wire.encode_request(self._next_id, request)))
                self._next_id += 1
                request = steps.send(self._login_step(connection))
        except StopIteration:
            return
        except TimeoutError:
            raise Unavailable(f"{self.address} did not answer a login in time") from None
        except PenstockError as error:
            raise login_refused(self.address, error, self._credentials) from None

    def _login_step(self, connection: socket.socket) -> LoginStep:
        while True:
            data = connection.recv(_READ_BYTES_MAX)
            if not data:
                raise Unavailable("it closed the connection instead of answering")
            for frame in self._frames.receive(data):
                return login_step(frame)

    def _send(self, data: bytes, deadline: float) -> None:
        connection = self._connected(deadline)
        connection.settimeout(self._left(deadline))
        try:
            connection.sendall(data)
        except TimeoutError:
            raise lost(self.address, "it takes no more bytes") from None

    def _read(self, deadline: float) -> None:
        """One read; its results become ``arrived``."""
        assert self._socket is not None
        self._socket.settimeout(max(deadline - self._clock.monotonic(), 0.001))
        try:
            data = self._socket.recv(_READ_BYTES_MAX)
        except TimeoutError:
            raise TimedOut(f"{self.address} did not answer in time", hint=_UNKNOWN) from None
        if not data:
            raise self._lost("the server closed it")
        self._is_heard = True
        for frame in self._frames.receive(data):
            asked = self._asked.pop(frame.request_id, None)
            if asked is not None:
                self._arrived[frame.request_id] = wire.decode_result(frame, asked)
            elif frame.request_id == 0:
                raise wire.last_word(frame)
