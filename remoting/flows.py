"""Flows: generators that carry out a command and yield the requests whose answers they need.

A flow yields a ``Request`` for the broker, ``AtNames`` for the name server, either of them as the front's ``Own``, or
``Sleep``; it is resumed with the reply,
or with the ``PenstockError`` that stands for it. It waits for nothing itself, so the same flows run over trio and in
tests. Each runs to its end by callbacks: no task per command.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from penstock.errors import InternalError, NotAuthorized, PenstockError
from penstock.protocol.link import Link
from penstock.protocol.requests.request import Request, Result

_log = logging.getLogger(__name__)


class AtNames(NamedTuple):
    """A request for the name server."""

    request: Request


class Own(NamedTuple):
    """A request of the front's own: whoever asked for the command needs no permission for it."""

    request: Request | AtNames


class Sleep(NamedTuple):
    """Time to pass, in seconds."""

    seconds: float


Wanted = Request | AtNames | Own | Sleep
Flow = Generator[Wanted, Any, Any]
Wake = Callable[[float, Callable[[], None]], None]
"""Calls a function after a number of seconds."""
Check = Callable[[Request], None]
"""Raises ``NotAuthorized`` for a request that is not allowed."""


class Flows:
    """Runs flows over the links to one broker and one name server."""

    def __init__(self, broker: Link, names: Link, wake: Wake, want_flush: Callable[[], None]) -> None:
        """``want_flush`` is called when something was submitted; ``flush`` is to follow in the same round."""
        self._broker = broker
        self._names = names
        self._wake = wake
        self._want_flush = want_flush

    def flush(self) -> None:
        """Sends what was submitted."""
        self._broker.flush()
        self._names.flush()

    def run(self, flow: Flow, on_end: Callable[[Any], None], check: Check | None = None) -> None:
        """Runs a flow; ``on_end`` gets what it returns, or the ``PenstockError`` that ended it. ``check``: of whoever
        asked for it; None where everything is allowed."""
        self._advance(flow, None, on_end, check)

    def _advance(self, flow: Flow, result: Result | None, on_end: Callable[[Any], None], check: Check | None) -> None:
        def resume(found: Result | None) -> None:
            self._advance(flow, found, on_end, check)

        while True:
            try:
                wanted = flow.throw(result) if isinstance(result, PenstockError) else flow.send(result)
            except StopIteration as end:
                on_end(end.value)
                return
            except PenstockError as error:
                on_end(error)
                return
            except Exception as error:  # a fault of ours harms one command, and no connection
                _log.exception("a flow of the remoting front failed")
                on_end(InternalError(f"the front failed: {type(error).__name__}"))
                return
            try:
                self._begin(wanted, check, resume)
                return
            except NotAuthorized as error:
                result = error.as_result()

    def _begin(self, wanted: Wanted, check: Check | None, resume: Callable[[Result | None], None]) -> None:
        """Asks for what a flow wants. Raises ``NotAuthorized``."""
        if isinstance(wanted, Sleep):
            self._wake(wanted.seconds, lambda: resume(None))
            return
        if isinstance(wanted, Own):
            wanted, check = wanted.request, None
        link = self._broker
        if isinstance(wanted, AtNames):
            link, wanted = self._names, wanted.request
        if check is not None:
            check(wanted)
        link.submit(wanted, resume)
        self._want_flush()
