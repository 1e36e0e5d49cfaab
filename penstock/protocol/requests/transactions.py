"""Transactional messages: halves, their outcomes, and what a producer is asked about them. Codes 170 to 179."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from penstock.protocol.requests.messages import Refused
from penstock.protocol.requests.request import Bytes, Done, Reply, Request, value

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
UNKNOWN: Final = "unknown"


@value
class HalvesBegun(Reply):
    """One id per record, in order; 0 for one that was refused."""

    ids: tuple[int, ...]
    refused: tuple[Refused, ...] = ()


@value
class BeginHalves(Request):
    """Stores halves: messages that no consumer sees before they are committed. ``body`` is ``count`` whole records end
    to end. ``group``: its producers are asked for the outcome later."""

    code: ClassVar[int] = 170
    reply: ClassVar[type[Reply]] = HalvesBegun
    group: str
    count: int
    body: Bytes


class HalfPart(NamedTuple):
    """The messages from number ``at`` on are in this half, up to the next part."""

    at: int
    id: int


@value
class HalfBegun(Reply):
    """The half's id; 0 where nothing was stored, because a message was ``refused``. ``parts``: where some messages were
    sent before and are in another half than the others; empty where all are in one."""

    id: int
    refused: tuple[Refused, ...] = ()
    parts: tuple[HalfPart, ...] = ()


@value
class BeginHalf(Request):
    """Stores one half of several messages, which are committed together. ``body`` is runs end to end
    (``runs.encode_runs``) with ``count`` messages in all, ``checksum`` its CRC-32C."""

    code: ClassVar[int] = 175
    reply: ClassVar[type[Reply]] = HalfBegun
    group: str
    count: int
    checksum: int
    body: Bytes


class HalfOutcome(NamedTuple):
    """The outcome for a half: ``commit``, ``rollback``, or ``unknown``, for which it is asked again later."""

    id: int
    outcome: str


class HalfEnded(NamedTuple):
    """The state of a half: its ``outcome`` (code 0), or an error's ``code`` and ``message``."""

    id: int
    outcome: str
    code: int = 0
    message: str = ""


@value
class HalvesEnded(Reply):
    """One row per half, in the order asked."""

    ended: tuple[HalfEnded, ...]


@value
class EndHalves(Request):
    """Gives the outcomes of halves of a group. The first outcome stands: another one is answered ``OutcomeStands``."""

    code: ClassVar[int] = 171
    reply: ClassVar[type[Reply]] = HalvesEnded
    group: str
    outcomes: tuple[HalfOutcome, ...]


class HalfRow(NamedTuple):
    """A half. ``checks``: how often a producer was asked. ``parked``: why an operator decides, empty while producers
    are asked. ``topic``, ``key``: of its first message. ``size``: bytes of its records, 0 where they are damaged.
    ``messages``: how many it has."""

    id: int
    group: str
    born_ms: int
    checks: int
    parked: str
    topic: str
    key: str
    size: int
    messages: int = 1


@value
class HalvesToCheck(Reply):
    """Halves whose outcome a producer is asked for. ``body``: their records end to end."""

    halves: tuple[HalfRow, ...]
    body: Bytes


@value
class WatchHalves(Request):
    """A producer of a group waits for halves to check. Each goes to one of those that wait."""

    code: ClassVar[int] = 172
    reply: ClassVar[type[Reply]] = HalvesToCheck
    group: str
    wait_s: float
    count_max: int = 16


@value
class HalvesPage(Reply):
    """Halves by id; ``after`` continues, 0 at the end. ``count``: of all."""

    halves: tuple[HalfRow, ...]
    after: int
    count: int


@value
class ListHalves(Request):
    """The halves behind an id."""

    code: ClassVar[int] = 173
    reply: ClassVar[type[Reply]] = HalvesPage
    is_repeatable: ClassVar[bool] = True
    after: int = 0
    count_max: int = 100


@value
class CheckHalf(Request):
    """Has a parked half asked for again from the beginning."""

    code: ClassVar[int] = 174
    reply: ClassVar[type[Reply]] = Done
    id: int
