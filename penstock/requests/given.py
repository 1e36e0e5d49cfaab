"""Requests that need not be encoded for a server in the same process. Over a wire each goes as another request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from penstock.requests.messages import Appended, AppendRuns, Pull, Pulled
from penstock.requests.request import Reply, Request, value
from penstock.runs import Run, StoredRun, checksum_of, encode_runs


@value
class GivenRuns(Request):
    """Stores publications of devices, ``count`` messages in all; over a wire ``AppendRuns``. The runs are the server's
    to read from then on: nobody changes them."""

    reply: ClassVar[type[Reply]] = Appended
    count: int
    runs: Sequence[Run]

    def for_wire(self) -> AppendRuns:
        body = encode_runs(self.runs)
        return AppendRuns(self.count, checksum_of(body), body)


@value
class GivenPulled(Reply):
    """``count`` messages, which are those of ``runs``, in order. ``next`` is the offset to pull next, ``count`` behind
    that of the first. Never sent over a wire: only who asks with ``GivenPull`` is answered so."""

    count: int
    next: int
    runs: list[StoredRun]


@value
class GivenPull(Request):
    """Messages of a queue, as ``Pull`` asks for them; over a wire ``Pull``. What is stored as runs and still in the
    server's memory comes as ``GivenPulled``; all else as ``Pulled``, by the same rules."""

    reply: ClassVar[type[Reply]] = Pulled
    queue: str
    offset: int
    bytes_max: int
    count_max: int
    wait_s: float

    def for_wire(self) -> Pull:
        return Pull(self.queue, self.offset, self.bytes_max, self.count_max, self.wait_s)
