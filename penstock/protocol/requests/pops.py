"""Messages that consumers pop: each is leased to a taker for a time, whatever queue it is in. Codes 125 to 129."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value
from penstock.protocol.requests.retries import BY_TABLE, SentBack


class Range(NamedTuple):
    """Messages at ``first <= offset < end``."""

    first: int
    end: int


@value
class Popped(Reply):
    """``count`` messages that the taker has from now on, as ``Pulled`` has them. ``deliveries``: how often these were
    given out before, and not acknowledged. ``end``: of the queue. ``next``: behind the last of them."""

    count: int
    deliveries: int
    next: int
    end: int
    body: Bytes
    checksum: int = 0


@value
class Pop(Request):
    """Leases messages of a topic's queue to a taker, for ``invisible_s`` seconds: those first whose lease is over. What
    was given out and not acknowledged ``attempts_max`` times becomes a dead letter of the group. Where there is nothing
    it waits up to ``wait_s``. ``begin``: the offset from which on the queue is popped where the group has none.
    ``tags``, ``filter``: as in ``Pull``, and the same for all takers of a group; messages that they leave out count as
    acknowledged. If they leave out many, a reply without messages may come before the wait is over: ask again."""

    code: ClassVar[int] = 125
    reply: ClassVar[type[Reply]] = Popped
    group: str
    queue: str
    taker: str
    begin: int
    invisible_s: float = 60.0
    count_max: int = 500
    bytes_max: int = 1 << 20
    wait_s: float = 0.0
    attempts_max: int = 16
    tags: tuple[str, ...] = ()
    filter: str = ""

    def reply_bytes(self) -> int:
        return self.bytes_max


@value
class AckPopped(Request):
    """Marks messages as done, whichever taker has them. Answered when that is durable."""

    code: ClassVar[int] = 126
    reply: ClassVar[type[Reply]] = Done
    group: str
    queue: str
    ranges: tuple[Range, ...]


@value
class ExtendPopped(Request):
    """A taker has its messages for ``invisible_s`` seconds more. 0: it gives them back without having tried them."""

    code: ClassVar[int] = 127
    reply: ClassVar[type[Reply]] = Done
    group: str
    queue: str
    taker: str
    ranges: tuple[Range, ...]
    invisible_s: float


@value
class SendPoppedBack(Request):
    """A message could not be worked off: as ``SendBack``, for what was popped. ``Fenced`` where another taker has it,
    or it is settled."""

    code: ClassVar[int] = 128
    reply: ClassVar[type[Reply]] = SentBack
    group: str
    queue: str
    taker: str
    offset: int
    delay_ms: int = BY_TABLE
    attempts_max: int = 16
    reason: str = ""


@value
class LeavePopped(Request):
    """A taker is gone: its messages of all queues go to others at once, untried, and so do those that it waits for."""

    code: ClassVar[int] = 129
    reply: ClassVar[type[Reply]] = Done
    group: str
    taker: str
