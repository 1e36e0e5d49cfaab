"""How a service or client reaches a server: requests out, replies by completion, batch by batch.

``Link`` is the seam. ``WireLink`` (penstock/client/wire_link.py) is the wire: one multiplexed connection, many frames
per write, many per read; in the same process it is the service's own session. The same tests run over both
(tests/penstock/protocol/test_link.py). This module waits for nothing and loads no event loop, so that cores may name
its types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.protocol.requests.request import Request, Result

OnResult = Callable[[Result], None]
"""Takes the result of a request. It runs in the event loop's thread, never waits and never raises."""


class Link(Protocol):
    """A way to one server.

    ``submit`` never waits and never raises: every request ends in exactly one call of its ``on_result``, with the
    reply or with a ``PenstockError`` (``Unavailable`` when the connection is lost, and the outcome of a write is
    then unknown). The call may happen before ``submit`` returns. Requests are carried out in the order of their
    submission; replies may come in any order.
    """

    def submit(self, request: Request, on_result: OnResult) -> None:
        """Hands over one request. Nothing is promised to leave before ``flush``."""
        ...

    def flush(self) -> None:
        """Sends the requests since the last call as one batch. To be called once per round."""
        ...


class Links(Protocol):
    """Hands out links by address ("host:port")."""

    def link(self, address: str) -> Link:
        """The link to a server. Never waits: connecting, and connecting again, happen in the link's own task."""
        ...

    def give_up(self, address: str) -> None:
        """The server has left this address: waiting requests end at once, as if the connection were lost. The link
        stays usable for the next server there."""
        ...
