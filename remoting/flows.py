"""Flows: generators that carry out a command and yield the requests whose answers they need.

A flow yields a ``Request`` for the broker or ``AtNames`` for the name server, either of them within ``Own``, or
``FromClient``, or ``Sleep``. It is resumed with the reply, or with the ``PenstockError`` that stands for it. It waits
for nothing itself, so the same flows run over trio and in tests. Each runs to its end by callbacks: no task per
command. What several flows append in one round is one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.errors import InternalError, NotAuthorized, PenstockError
from penstock.protocol.link import Link, OnResult
from penstock.protocol.requests.messages import Append, Appended
from penstock.protocol.requests.request import Request, Result
from remoting.frames import Command

APPEND_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of the appends of one round that go as one request; a larger one goes by itself."""

_log = logging.getLogger(__name__)


class AtNames(NamedTuple):
    """A request for the name server."""

    request: Request


class Own(NamedTuple):
    """A request of the front's own, for which the client's user needs no permission."""

    request: Request | AtNames


class Sleep(NamedTuple):
    """Time to pass, in seconds."""

    seconds: float


class FromClient(NamedTuple):
    """A question to a connected client, which is answered with its ``Command``. ``connection``: the client's number."""

    connection: int
    command: Command


Wanted = Request | AtNames | Own | FromClient | Sleep
Flow = Generator[Wanted, Any, Any]
Wake = Callable[[float, Callable[[], None]], None]
"""Calls a function after a number of seconds."""
Resume = Callable[[Any], None]
AskClient = Callable[[FromClient, Resume], None]
"""Asks a client, and calls with its answer, or with a ``PenstockError``."""
Check = Callable[[Request], None]
"""Raises ``NotAuthorized`` for a request that is not allowed."""


class Flows:
    """Runs flows over the links to one broker and one name server."""

    def __init__(
        self, broker: Link, names: Link, wake: Wake, want_flush: Callable[[], None], ask_client: AskClient
    ) -> None:
        """``want_flush`` is called when something was submitted; ``flush`` is to follow in the same round."""
        self._broker = broker
        self._names = names
        self._wake = wake
        self._want_flush = want_flush
        self._ask_client = ask_client
        self._appends: list[Append] = []
        self._resumes: list[OnResult] = []
        self._bytes = 0

    def flush(self) -> None:
        """Sends submitted requests."""
        self._hand_over()
        self._broker.flush()
        self._names.flush()

    def run(self, flow: Flow, on_end: Callable[[Any], None], check: Check | None = None) -> None:
        """Runs a flow; ``on_end`` gets its result, or the ``PenstockError`` that ended it. ``check`` judges its
        requests by the rights of the command's user; None where everything is allowed."""
        _Run(self, flow, on_end, check).go(None)

    def begin(self, wanted: Wanted, check: Check | None, resume: Resume) -> None:
        """Asks for what a flow wants. Raises ``NotAuthorized``."""
        if isinstance(wanted, Sleep):
            self._wake(wanted.seconds, lambda: resume(None))
            return
        if isinstance(wanted, FromClient):
            self._ask_client(wanted, resume)
            return
        if isinstance(wanted, Own):
            wanted, check = wanted.request, None
        link = self._broker
        if isinstance(wanted, AtNames):
            link, wanted = self._names, wanted.request
        if check is not None:
            check(wanted)
        if type(wanted) is Append and link is self._broker:
            self._gather(wanted, resume)
        else:
            self._hand_over()
            link.submit(wanted, resume)
        self._want_flush()

    # ------------------------------------------------------------ appends of one round

    def _gather(self, request: Append, resume: OnResult) -> None:
        """Keeps an append until the next flush, or until as much is there as goes into one request."""
        if self._bytes + len(request.body) > APPEND_BYTES_MAX:
            self._hand_over()
        self._appends.append(request)
        self._resumes.append(resume)
        self._bytes += len(request.body)

    def _hand_over(self) -> None:
        """Submits the appends that wait as one."""
        if not self._appends:
            return
        appends, resumes = self._appends, self._resumes
        self._appends, self._resumes, self._bytes = [], [], 0
        if len(appends) == 1:
            self._broker.submit(appends[0], resumes[0])
            return
        whole = Append(sum([one.count for one in appends]), True, b"".join([one.body for one in appends]))
        self._broker.submit(whole, partial(_share, appends, resumes))


class _Run:
    """One run of a flow. An answer that comes at once, inside the call that asks, is taken when that call has returned:
    however many requests a flow has, they do not nest."""

    def __init__(self, flows: Flows, flow: Flow, on_end: Callable[[Any], None], check: Check | None) -> None:
        self._flows = flows
        self._flow = flow
        self._on_end = on_end
        self._check = check
        self._is_asking = False
        self._is_answered = False
        self._answer: Result | None = None

    def resume(self, result: Result | None) -> None:
        """Takes the answer that the flow waits for."""
        if self._is_asking:
            self._is_answered, self._answer = True, result
        else:
            self.go(result)

    def go(self, result: Result | None) -> None:
        """Goes on with an answer, until the next one is to be waited for."""
        flow = self._flow
        while True:
            try:
                wanted = flow.throw(result) if isinstance(result, PenstockError) else flow.send(result)
            except StopIteration as end:
                self._on_end(end.value)
                return
            except PenstockError as error:
                self._on_end(error)
                return
            except Exception as error:  # a fault of ours harms one command, and no connection
                _log.exception("a flow of the remoting front failed")
                self._on_end(InternalError(f"the front failed: {type(error).__name__}"))
                return
            self._is_asking, self._is_answered = True, False
            try:
                self._flows.begin(wanted, self._check, self.resume)
            except NotAuthorized as error:
                self.resume(error.as_result())
            finally:
                self._is_asking = False
            if not self._is_answered:
                return
            result, self._answer = self._answer, None


def _share(appends: Sequence[Append], resumes: Sequence[OnResult], result: Result) -> None:
    """Gives each of several appends its part of their common result."""
    first = 0
    for append, resume in zip(appends, resumes, strict=True):
        end = first + append.count
        if isinstance(result, Appended):
            refused = [one._replace(at=one.at - first) for one in result.refused if first <= one.at < end]
            resume(Appended(result.level, result.placed[first:end], tuple(refused)))
        else:
            resume(result.as_result() if isinstance(result, PenstockError) else result)
        first = end
