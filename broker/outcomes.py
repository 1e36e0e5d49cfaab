"""What a request function answers: a value that carries the order in which things may happen.

Only ``dispatch`` turns outcomes into replies. Replication will add ``AfterQuorum``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.requests.request import Result


class Now(NamedTuple):
    """The reply may go at once."""

    result: Result


class AfterSync(NamedTuple):
    """The reply may go when the log is durable up to ``point``."""

    result: Result
    point: int


class Parked(NamedTuple):
    """There is nothing to say yet: ask ``retry`` again when one of ``wakers`` stirs; at ``deadline`` say what it
    then gives.

    ``wakers`` are queue names, or ``group:NAME`` for a change of a group. ``retry(last)`` returns None while there
    is still nothing; with ``last`` true it must return a result.
    """

    wakers: tuple[str, ...]
    deadline: float
    retry: Callable[[bool], Result | None]


Outcome = Now | AfterSync | Parked
