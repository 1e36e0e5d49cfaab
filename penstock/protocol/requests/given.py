"""Requests that need not be encoded for a server in the same process. Over a wire each goes as another request.

They are plain classes, not dataclasses as all others: there are three for every message, and compiled ones are made in
a fraction of the time.
"""

from __future__ import annotations

from typing import ClassVar

from penstock.protocol.requests.messages import Appended, AppendRuns, Pull, Pulled
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.runs import Run, checksum_of, encode_runs


class GivenRuns(Request):
    """Stores publications of devices, ``count`` messages in all; over a wire ``AppendRuns``. The server owns the runs
    from then on: it notes on them where they are stored, and no other code changes them. ``gateway_epoch``,
    ``attempt``: the gateway's."""

    __slots__ = ("attempt", "count", "gateway_epoch", "runs")
    reply: ClassVar[type[Reply]] = Appended

    def __init__(self, count: int, runs: list[Run], gateway_epoch: str = "", attempt: int = 0) -> None:
        self.count = count
        self.runs = runs
        self.gateway_epoch = gateway_epoch
        self.attempt = attempt

    def for_wire(self) -> AppendRuns:
        body = encode_runs(self.runs)
        return AppendRuns(self.count, checksum_of(body), body, self.gateway_epoch, self.attempt)


class GivenPulled(Reply):
    """``count`` messages, which are those of ``runs``, in order. ``next`` is the offset to pull next, ``count`` behind
    that of the first. Never sent over a wire: it only answers ``GivenPull``."""

    __slots__ = ("count", "next", "runs")

    def __init__(self, count: int, next: int, runs: list[Run]) -> None:
        self.count = count
        self.next = next
        self.runs = runs


class GivenPull(Request):
    """Messages of a queue, as ``Pull`` asks for them; over a wire ``Pull``. Messages that are stored as runs and still
    in the server's memory come as ``GivenPulled``, all others as ``Pulled``, by the same rules."""

    __slots__ = ("bytes_max", "count_max", "offset", "queue", "wait_s")
    reply: ClassVar[type[Reply]] = Pulled

    def __init__(self, queue: str, offset: int, bytes_max: int, count_max: int, wait_s: float) -> None:
        self.queue = queue
        self.offset = offset
        self.bytes_max = bytes_max
        self.count_max = count_max
        self.wait_s = wait_s

    def for_wire(self) -> Pull:
        return Pull(self.queue, self.offset, self.bytes_max, self.count_max, self.wait_s)
