"""Outcomes of requests: values that carry the order in which things may happen.

Only ``dispatch`` turns outcomes into replies.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.store.level import Level
from penstock.protocol.requests.request import Result


class Now:
    """The reply may go at once."""

    __slots__ = ("result",)

    def __init__(self, result: Result) -> None:
        self.result = result


class AfterSync:
    """The reply may go when this disk has the log up to ``point``: for messages of level ``disk``."""

    __slots__ = ("point", "result")

    def __init__(self, result: Result, point: int) -> None:
        self.result = result
        self.point = point


class AfterQuorum:
    """The reply may go when the log is committed up to ``point``: for every durable fact, and for messages of level
    ``quorum``."""

    __slots__ = ("point", "result")

    def __init__(self, result: Result, point: int) -> None:
        self.result = result
        self.point = point


class AfterRound:
    """The reply may go when the log is committed up to ``point`` and a majority has said, since the request came, that
    this node leads: for what is true now, which a leader that is none any more would not know. ``again``: gives the
    result anew then, for one that has just begun to lead does not know yet all that is committed."""

    __slots__ = ("again", "point", "result")

    def __init__(self, result: Result, point: int = 0, again: Callable[[], Result] | None = None) -> None:
        self.result = result
        self.point = point
        self.again = again


class Parked:
    """A request without an answer yet: ask ``retry`` again when one of ``wakers`` stirs; at ``deadline`` answer with
    what it then gives.

    ``wakers`` are queue names, or names that a theme makes for its changes. ``retry(last)`` returns None while there
    is still nothing; with ``last`` true it must return a result.
    """

    __slots__ = ("deadline", "retry", "wakers")

    def __init__(self, wakers: tuple[str, ...], deadline: float, retry: Callable[[bool], Result | None]) -> None:
        self.wakers = wakers
        self.deadline = deadline
        self.retry = retry


Outcome = Now | AfterSync | AfterQuorum | AfterRound | Parked


def after_level(level: Level, result: Result, point: int) -> Now | AfterSync | AfterQuorum:
    """The outcome of an append up to ``point`` whose weakest message has this level."""
    if level is Level.CACHE:
        return Now(result)
    return AfterSync(result, point) if level is Level.DISK else AfterQuorum(result, point)
