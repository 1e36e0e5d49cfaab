"""Accepts connections for as long as the process has descriptors; out of them it waits, and says so once.

The system hands out the lowest descriptor that is free, so the number of a new connection says how many there still
are. The last ``KEPT`` stay for the rest of the process (status pages, files of the log, links): a client that gets one
of them is turned away. Where a descriptor cannot be had at all, accepting is tried again ten times a second. The log
has a line when that begins and one when it is over, not one per attempt.
"""

from __future__ import annotations

import errno
import logging
import math
from typing import Any, Final, cast

import trio

from penstock.service import descriptors

KEPT: Final = 32
"""Half of what a gateway in the same process leaves at least (``penstock/service/descriptors.py``)."""
AGAIN_S: Final = 0.1
QUIET_S: Final = 5.0
"""The shortage is over after this long without a refusal: one client that leaves makes room for one other only."""
_OUT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})

_log = logging.getLogger(__name__)


class Doorkeeper:
    """Gate of a listener: whether connections can be accepted. ``what``: the listener, as the log names it."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._why = ""
        self._began = 0.0
        self._last = -math.inf

    def reasons(self) -> list[str]:
        """The reasons why it is not ready; empty if it is."""
        is_over = not self._why or trio.current_time() - self._last >= QUIET_S
        return [] if is_over else [f"the listener does not accept: {self._why}"]

    def lets_in(self, stream: trio.abc.Stream) -> bool:
        """Whether a connection that was accepted may stay: not if it has taken one of the descriptors that are kept."""
        if isinstance(stream, trio.SocketStream) and stream.socket.fileno() >= descriptors.limit() - KEPT:
            self.failed(f"the process may have {descriptors.limit()} files and sockets open and has nearly all of them")
            return False
        now = trio.current_time()
        if self._why and now - self._last >= QUIET_S:
            self._why = ""
            _log.warning("%s accepts connections again, after %.0f s", self.what, now - self._began)
        return True

    def failed(self, why: str) -> None:
        """A connection could not be accepted."""
        now = trio.current_time()
        if not self._why:
            self._began = now
            _log.error(
                "%s accepts no connections: %s; raise the limit (LimitNOFILE= in systemd, ulimit -n)", self.what, why
            )
        self._why, self._last = why, now


class PatientListener(trio.abc.Listener[trio.abc.Stream]):
    """A listener that waits where another one fails for want of descriptors or memory."""

    def __init__(self, listener: trio.abc.Listener[Any], door: Doorkeeper) -> None:
        self._listener = listener
        self._door = door

    async def accept(self) -> trio.abc.Stream:
        """The next connection. Raises what the listener raises for any other reason."""
        while True:
            try:
                return cast(trio.abc.Stream, await self._listener.accept())
            except OSError as error:
                if error.errno not in _OUT:
                    raise
                self._door.failed(error.strerror or type(error).__name__)
                await trio.sleep(AGAIN_S)

    async def aclose(self) -> None:
        await self._listener.aclose()
