"""One connection to one server on a plain blocking socket, for scripts and Spark executors.

It keeps the socket and an incomplete frame; it connects at the first call and again after a loss. Calls are one at a
time: it is not for several threads at once. Every call has a deadline. It imports no event loop.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from penstock import wire
from penstock.addresses import lost, no_server, split_address
from penstock.errors import PenstockError, ProtocolError, TimedOut, Unavailable
from penstock.requests import Ping, Reply, Request, Result
from penstock.world import Clock, RealClock

TIMEOUT_S: Final = 10.0
_READ_BYTES_MAX: Final = 1024 * 1024


class BlockingLink:
    """Request and reply over one connection.

    Args:
        address: ``host:port``.
        timeout_s: deadline of a call that names none, connecting included; the wait of a long poll comes on top.
    """

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S, *, clock: Clock | None = None) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._host, self._port = split_address(address)
        self._clock = clock or RealClock()
        self._socket: socket.socket | None = None
        self._frames = wire.FrameReader()
        self._next_id = 1

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the next call would make a new one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
            self._frames = wire.FrameReader()

    def call(self, request: Request, timeout_s: float | None = None) -> Reply:
        """The reply to one request.

        Raises:
            TimedOut: the deadline passed first; the outcome of a write is unknown.
            Unavailable: no connection, or it was lost; the outcome of a write that was sent is unknown.
            PenstockError: what the server answered.
        """
        result = self.call_many([request], timeout_s)[0]
        if isinstance(result, PenstockError):
            raise result
        return result

    def call_many(self, requests: Sequence[Request], timeout_s: float | None = None) -> list[Result]:
        """The result of each request, sent with one write under one deadline.

        Raises ``TimedOut``, ``Unavailable`` and ``ProtocolError`` for all of them; other errors are results.
        """
        wait_s = max((getattr(request, "wait_s", 0.0) for request in requests), default=0.0)
        deadline = self._clock.monotonic() + (self.timeout_s + wait_s if timeout_s is None else timeout_s)
        asked = {self._next_id + at: request for at, request in enumerate(requests)}
        self._next_id += len(asked)
        parts = [part for request_id, request in asked.items() for part in wire.encode_request(request_id, request)]
        try:
            self._send(wire.join(parts), deadline)
            return self._results(asked, deadline)
        except BaseException as error:
            self.close()  # half a frame may be under way: nothing on this connection can be trusted any more
            if isinstance(error, PenstockError) or not isinstance(error, OSError):
                raise
            if isinstance(error, TimeoutError):
                raise self._timed_out() from None
            raise lost(self.address, error.strerror or str(error)) from None

    def _timed_out(self) -> TimedOut:
        return TimedOut(f"{self.address} did not answer in time", hint="whether a write was stored is unknown")

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise self._timed_out()
        return left

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self._host, self._port), self._left(deadline))
            except PenstockError:
                raise
            except TimeoutError:
                raise Unavailable(f"no connection to {self.address} in time") from None
            except OSError as error:
                raise no_server(self.address, error) from None
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _send(self, data: bytes, deadline: float) -> None:
        connection = self._connected(deadline)
        connection.settimeout(self._left(deadline))
        connection.sendall(data)

    def _results(self, asked: dict[int, Request], deadline: float) -> list[Result]:
        results: dict[int, Result] = {}
        while len(results) < len(asked):
            for frame in self._frames.receive(self._receive(deadline)):
                if frame.request_id in asked:
                    results[frame.request_id] = wire.decode_result(frame, type(asked[frame.request_id]))
                elif frame.request_id == 0:
                    raise _last_word(wire.decode_result(frame, Ping))
        return [results[request_id] for request_id in asked]

    def _receive(self, deadline: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(self._left(deadline))
        data = self._socket.recv(_READ_BYTES_MAX)
        if not data:
            raise lost(self.address, "the server closed it")
        return data


def _last_word(result: Result) -> PenstockError:
    """What a frame with id 0 tells: the server ends the connection, and why."""
    return result if isinstance(result, PenstockError) else ProtocolError("a reply to no request")
