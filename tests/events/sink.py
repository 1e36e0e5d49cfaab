"""An HTTP API that answers as a test has planned, in a thread of its own."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.patience import PATIENCE_S


class Got(NamedTuple):
    """A request. ``headers``: names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Sink:
    """Answers each request with the next word of its plan, and with the last one from then on: a status, perhaps with
    headers; ``hang``, ``reset``, ``drip``, ``garbage`` or ``huge``."""

    def __init__(self, *plan: Any) -> None:
        self.got: list[Got] = []
        self.plan = list(plan) or [200]
        self._news = threading.Condition()
        self._ended = threading.Event()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                sink._answer(self, Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body))

            do_PUT = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/in"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def _answer(self, request: Any, got: Got) -> None:
        with self._news:
            word = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
            self.got.append(got)
            self._news.notify_all()
        status, headers = word if isinstance(word, tuple) else (word, {})
        if isinstance(status, int):
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("content-length", "0")
            request.end_headers()
            return
        request.close_connection = True
        self._misbehave(request, status)

    def _misbehave(self, request: Any, word: str) -> None:
        line = request.connection
        if word == "hang":
            self._ended.wait(PATIENCE_S)
        elif word == "reset":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.close()
        elif word == "garbage":
            line.sendall(b"\0\1\2 this is no HTTP\r\n\r\n")
        else:
            line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n")
            chunk = b"x" * 65_536 if word == "huge" else b"x"
            try:
                while not self._ended.wait(0 if word == "huge" else 0.05):
                    line.sendall(chunk)
            except OSError:
                pass  # they have had enough

    def wait(self, enough: Callable[[list[Got]], bool] | int) -> list[Got]:
        """The requests, as soon as there are enough."""
        is_enough = (lambda got: len(got) >= enough) if isinstance(enough, int) else enough
        with self._news:
            assert self._news.wait_for(lambda: is_enough(self.got), PATIENCE_S), self.got
            return list(self.got)

    def end(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)
