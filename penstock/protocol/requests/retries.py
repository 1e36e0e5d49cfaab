"""Messages that a consumer group could not work off: tried again later, and dead letters. Codes 160 to 169."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.request import Done, Reply, Request, value

BY_TABLE: Final = -1
"""The delay of the attempt's place in the broker's table."""


@value
class SentBack(Reply):
    """The outcome of giving a message back. ``attempt``: how often it was tried. ``due_ms``: when it comes again, in
    milliseconds since 1970; 0 for a dead letter."""

    attempt: int
    due_ms: int


@value
class SendBack(Request):
    """A member gives a message back that it could not work off. The broker takes it from its own log and has it come
    again in the group's retry topic after ``delay_ms``, or, once it was tried ``attempts_max`` times, stores it as a
    dead letter of the group with the ``reason``. Answered when that is durable: only then is the message passed.
    ``Fenced`` unless the member holds the queue in that generation."""

    code: ClassVar[int] = 160
    reply: ClassVar[type[Reply]] = SentBack
    group: str
    member: str
    generation: int
    queue: str
    offset: int
    delay_ms: int = BY_TABLE
    attempts_max: int = 16
    reason: str = ""


class Back(NamedTuple):
    """A message that is given back, as in ``SendBack``."""

    queue: str
    offset: int
    delay_ms: int
    reason: str


class WentBack(NamedTuple):
    """The outcome for one message, as in ``SentBack``; or the ``code`` of an error and its ``message``."""

    attempt: int
    due_ms: int
    code: int
    message: str


@value
class SentAllBack(Reply):
    """Outcomes of a ``SendAllBack``, in its order."""

    rows: tuple[WentBack, ...]


@value
class SendAllBack(Request):
    """A member gives several messages back; each is stored or refused by itself, the answer has their order. ``Fenced``
    unless the member holds all their queues in that generation."""

    code: ClassVar[int] = 161
    reply: ClassVar[type[Reply]] = SentAllBack
    group: str
    member: str
    generation: int
    rows: tuple[Back, ...]
    attempts_max: int = 16


@value
class SendLetterAgain(Request):
    """Delivers a group's dead letter to the group again, as a message that was never tried: by the group's retry topic,
    so no other group gets it. Answered when that is durable; a repeated request sends it twice."""

    code: ClassVar[int] = 162
    reply: ClassVar[type[Reply]] = Done
    group: str
    offset: int
