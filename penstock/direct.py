"""Sends and receives beside a stream, at once: what a socket takes or has now, without a turn of the event loop.

A stream of anyio or trio costs two turns of the loop for each write. A socket mostly has room for a write; only the
rest goes to the stream. Nothing here waits.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any


class DirectSocket:
    """The socket of a stream, under a descriptor of its own. While the stream is sending, no other code may.

    Attributes:
        file: to wait for what comes.
    """

    def __init__(self, file: socket.socket) -> None:
        self.file = file

    @classmethod
    def of(cls, raw: Any) -> DirectSocket | None:
        """The direct way of a stream's socket; ``None`` if it has no descriptor, as in a simulation."""
        try:
            number = os.dup(raw.fileno())
        except (OSError, AttributeError):
            return None
        try:
            file = socket.socket(fileno=number)
        except OSError:
            os.close(number)
            return None
        try:
            file.setblocking(False)
            if file.getpeername() == raw.getpeername():
                return cls(file)
        except OSError:  # it is not connected any more
            pass
        file.close()
        return None

    def send(self, data: bytes | memoryview) -> int:
        """Returns the number of bytes that the socket took. 0 if it has no room, or is broken: its stream raises the
        error."""
        with contextlib.suppress(OSError):
            return self.file.send(data)
        return 0

    def receive(self, size: int) -> bytes | None:
        """The received bytes, empty at the end; ``None`` if there is nothing now. Raises ``OSError``."""
        with contextlib.suppress(BlockingIOError):
            return self.file.recv(size)
        return None

    def close(self) -> None:
        """Gives the descriptor back; the stream's own stays."""
        self.file.close()
