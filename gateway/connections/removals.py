"""Ends the connections of users who were removed from the password file.

A login by a file is valid as long as the file has the user: a stolen device that was removed must not keep its
connection. A changed password ends no connection, because a file that is made anew has other salts, and a whole fleet
would be cut off. Logins by token or certificate do not depend on the file. A file may be read while it is written, so
it is checked again some seconds after a change. Time comes with ``tick``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from gateway.login.auth import Identity
from gateway.mqtt.reason_codes import Reason, ReasonCode, Told

SETTLED_S: Final = 5.0
_REMOVED: Final = Told(ReasonCode.NOT_AUTHORIZED, "the user was removed")


class Removable(Protocol):
    """A connection (``gateway.connections.device.Device``)."""

    identity: Identity | None

    def fail(self, reason: Reason) -> None:
        """Closes it for a reason."""
        ...


class Removals:
    """The end of connections whose users were removed. ``count``: connections that ended so."""

    def __init__(self, is_gone: Callable[[Identity], bool]) -> None:
        self._is_gone = is_gone
        self._due = math.inf
        self.count = 0

    def users_changed(self, now: float) -> None:
        """Notes that there is another password file."""
        self._due = now + SETTLED_S

    def tick(self, clients: Iterable[Removable], now: float) -> None:
        """Ends connections if it is time to look; to be called about twice a second."""
        if now < self._due:
            return
        self._due = math.inf
        for client in [one for one in clients if one.identity is not None and self._is_gone(one.identity)]:
            self.count += 1
            client.fail(_REMOVED)
