"""Messages that are delivered later. Codes 150 to 159."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value

TIMER_FORGOTTEN: Final = -1
"""The id of a timer that an earlier request has set, where the broker does not know any more which one it is."""


class Timer(NamedTuple):
    """A message that sleeps. ``due_ms``: when it is due, in milliseconds since 1970. ``size``: bytes of its record.
    ``damaged``: its stored bytes are not good any more, so its topic and key are not known."""

    id: int
    due_ms: int
    topic: str
    key: str
    size: int
    damaged: bool = False


class TimerSet(NamedTuple):
    """The timer of a message, which id and due time together name. Zeros for one that was refused. Of a message that is
    stored already, that of its first request, or ``TIMER_FORGOTTEN``."""

    id: int
    due_ms: int


@value
class TimersSet(Reply):
    """One ``TimerSet`` per message, in order."""

    timers: tuple[TimerSet, ...]
    refused: tuple[Refused, ...] = ()


@value
class SetTimers(Request):
    """Stores messages that are delivered later. ``body`` is whole records end to end, one for each of ``due_ms``: when
    it is due, in milliseconds since 1970, or, with ``from_now``, in milliseconds from now. Each is stored or refused on
    its own; the reply comes when all are durable."""

    code: ClassVar[int] = 150
    reply: ClassVar[type[Reply]] = TimersSet
    due_ms: tuple[int, ...]
    from_now: bool
    body: Bytes


@value
class CancelTimer(Request):
    """Takes a message back that is not delivered yet: ``TimerFired`` where it is, ``TimerNotFound`` where there is no
    such timer, or it was cancelled before."""

    code: ClassVar[int] = 151
    reply: ClassVar[type[Reply]] = Done
    id: int
    due_ms: int


@value
class TimersPage(Reply):
    """Timers by due time and id; where there may be more, ``after_ms`` and ``after_id`` continue, else they are 0.
    ``count``, ``size``: all timers of this broker, and bytes of their frames. ``frozen_s``: how far its machine's clock
    is ahead, where nothing fires for that; then ``now_ms`` is the time that it goes by, else 0."""

    timers: tuple[Timer, ...]
    after_ms: int
    after_id: int
    count: int
    size: int
    frozen_s: float = 0.0
    now_ms: int = 0


@value
class ListTimers(Request):
    """The timers behind a due time and an id, in the order in which they fire."""

    code: ClassVar[int] = 152
    reply: ClassVar[type[Reply]] = TimersPage
    is_repeatable: ClassVar[bool] = True
    after_ms: int = 0
    after_id: int = 0
    count_max: int = 100


@value
class ClockConfirmed(Reply):
    """The time by which the clock was ahead; 0 if nothing was frozen, and nothing has changed."""

    ahead_s: float


@value
class ConfirmClock(Request):
    """An operator says that the machine's clock is right, which was seen to be ``ahead_s`` ahead: timers fire by it
    again. ``InvalidRequest`` where it is ahead by something else."""

    code: ClassVar[int] = 153
    reply: ClassVar[type[Reply]] = ClockConfirmed
    ahead_s: float
