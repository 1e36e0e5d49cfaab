"""Transactional messages as producers have them: how halves begin and end, and what a listener says about one. Pure.

The messages of a transaction are one half at each broker that they go to. A begin without an answer is repeated where
the broker knows the messages by their numbers; else the half that may be there has no transaction, and the listener is
asked about it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from penstock.client.arguments import check_group_name
from penstock.client.sending import Outgoing, append_of, final_error, once_more
from penstock.client.ways import ASLEEP, Way
from penstock.errors import (
    HalfNotFound,
    InternalError,
    InvalidMessage,
    InvalidRequest,
    PenstockError,
    ProtocolError,
    from_wire,
)
from penstock.protocol.message import FLAG_SEQUENCED, decode_message
from penstock.protocol.received import MessageQueue, ReceivedMessage
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    BeginHalf,
    EndHalves,
    HalfBegun,
    HalfOutcome,
    HalfPart,
    HalvesEnded,
    HalvesToCheck,
)

_log = logging.getLogger(__name__)

CHECK_S: Final = 10.0
"""Seconds that one call of a listener may take."""
CHECKS_MAX: Final = 64
"""Listeners at work at once."""
WATCH_S: Final = 30.0
WATCH_COUNT: Final = 16

_SETTLED_LATER: Final = "the producers of the group are asked about it"


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """Messages whose transaction has no outcome yet.

    Attributes:
        broker, id: together they name the half.
        messages: those of the transaction that are at this broker; they are in no queue yet. Topic, key, body and
            properties are those of the first one.
        began_ms: when it began, in wall-clock milliseconds since 1970.
        checks: number of calls of a listener for it, including this one.
    """

    broker: str
    id: int
    messages: tuple[ReceivedMessage, ...]
    began_ms: int
    checks: int

    @property
    def message(self) -> ReceivedMessage:
        return self.messages[0]

    @property
    def topic(self) -> str:
        return self.message.topic

    @property
    def key(self) -> str | bytes:
        return self.message.key

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def properties(self) -> Mapping[str, str]:
        return self.message.properties


BlockingListener = Callable[[HalfMessage], str]
"""Returns the outcome of a transaction: ``"commit"``, ``"rollback"``, or ``"unknown"`` to be called again later."""
Listener = Callable[[HalfMessage], Awaitable[str]] | BlockingListener


class Half(NamedTuple):
    """The place of a half."""

    broker: str
    address: str
    id: int


class Beginning(Way):
    """The way to store the messages of one transaction of a producer group."""

    may_leave: ClassVar[bool] = False
    is_whole: ClassVar[bool] = True

    def __init__(self, group: str) -> None:
        self._group = group

    def request(self, batch: Sequence[Outgoing]) -> Request:
        runs = append_of(batch)
        return BeginHalf(self._group, runs.count, runs.checksum, runs.body)

    def settle(self, batch: Sequence[Outgoing], broker: str, result: Result) -> None:
        if isinstance(result, HalfBegun) and result.refused:
            result = from_wire(result.refused[0].code, result.refused[0].message)
        if isinstance(result, HalfBegun):
            at, parts = 0, list(result.parts or (HalfPart(0, result.id),))
            for one in batch:
                while len(parts) > 1 and parts[1].at <= at:
                    del parts[0]
                one.stored(MessageQueue(broker, one.topic, ASLEEP), parts[0].id, "")
                at += one.count
            return
        if not isinstance(result, PenstockError):
            result = InternalError("the broker's answer does not fit")
            result.unknown = True
        for one in batch:
            one.fail(result)

    def again(self, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
        return [one for one in once_more(outgoing) if not one.unknown or one.run.flag & FLAG_SEQUENCED]


class Block:
    """The state of a transaction's block, async or blocking: its halves once it has begun, and their outcome."""

    def __init__(self) -> None:
        self._halves: list[Half] | None = None
        self._outcome = COMMIT

    @property
    def ids(self) -> tuple[tuple[str, int], ...]:
        """Broker and id of each half, as ``penstock transaction list`` shows them: one for each broker that some of the
        messages go to."""
        return tuple([(half.broker, half.id) for half in self._halves or ()])

    def rollback(self) -> None:
        """Drops the messages when the block ends."""
        self._outcome = ROLLBACK

    def unknown(self) -> None:
        """Leaves the outcome to a listener of the group."""
        self._outcome = UNKNOWN

    def _enter(self) -> None:
        if self._halves is not None:
            raise InvalidRequest("a transaction begins only once")
        self._halves = []

    def _refused(self, outcome: str, refusal: PenstockError) -> None:
        """Raises the error of an outcome that a broker may not have. A rollback is left to the check."""
        if outcome == ROLLBACK:
            _log.warning("a rollback is left to the check: %s", refusal)
            return
        raise (left_to_checks(refusal) if outcome == COMMIT else refusal) from refusal.__cause__


def check_group(group: object, listener: object) -> None:
    """Raises ``InvalidRequest`` unless a producer may have this group and listener."""
    if group != "":
        check_group_name(group)
    if listener is not None and not callable(listener):
        raise InvalidRequest(f"check is a function that takes a half, not {listener!r}")
    if listener is not None and not group:
        raise InvalidRequest("check needs a producer group", hint="Producer(group=..., check=...)")


def begun(outgoing: Sequence[Outgoing]) -> tuple[list[Half], PenstockError | None]:
    """The halves that began, and the first error of those that did not."""
    halves: dict[Half, None] = {}
    errors: list[PenstockError] = []
    for one in outgoing:
        if one.queue is None:
            errors.append(final_error(one))
        else:
            assert one.broker is not None
            halves[Half(one.queue.broker, one.broker.address, one.offset)] = None
    return list(halves), errors[0] if errors else None


def ends_of(group: str, halves: Sequence[Half], outcome: str) -> Iterator[tuple[Half, EndHalves]]:
    """The requests that end halves, one for each broker, with one of the halves there. None where the outcome is left
    to the check."""
    by_broker: dict[str, list[Half]] = {}
    for half in halves if outcome != UNKNOWN else ():
        by_broker.setdefault(half.broker, []).append(half)
    for there in by_broker.values():
        yield there[0], EndHalves(group, tuple([HalfOutcome(half.id, outcome) for half in there]))


def check_ended(ended: HalvesEnded) -> None:
    """Raises what one of the halves was refused with."""
    for row in ended.ended:
        if row.code:
            error = from_wire(row.code, row.message)
            error.unknown = isinstance(error, HalfNotFound)  # it has some outcome, which is forgotten by now
            raise error


def left_to_checks(error: PenstockError) -> PenstockError:
    """The error of a commit that was not answered for certain."""
    if not error.retryable and not error.unknown:
        return error
    made = type(error)(error.message, hint=f"the transaction may be committed: {_SETTLED_LATER}")
    made.unknown = True
    return made


def halves_in(found: HalvesToCheck, broker: str) -> list[HalfMessage]:
    """The halves that a broker asks about. Raises ``ProtocolError``."""
    data, at, halves = bytes(found.body), 0, list[HalfMessage]()
    for row in found.halves:
        try:
            messages = tuple([decode_message(record) for record in _records_in(data[at : at + row.size])])
        except InvalidMessage as error:
            raise ProtocolError(f"the half {row.id} of {broker} is no message: {error.message}") from None
        at += row.size
        halves.append(HalfMessage(broker, row.id, messages, row.born_ms, row.checks))
    return halves


def _records_in(data: bytes) -> Iterator[bytes]:
    """The records that stand end to end, at least one."""
    at = 0
    while not at or at < len(data):
        size = max(int.from_bytes(data[at : at + 4], "big"), 4)
        yield data[at : at + size]
        at += size


def verdict_of(said: object) -> str:
    """The listener's verdict. Raises ``InvalidRequest`` for any other value."""
    if said not in (COMMIT, ROLLBACK, UNKNOWN):
        raise InvalidRequest(f"a listener says {COMMIT!r}, {ROLLBACK!r} or {UNKNOWN!r}, not {said!r}")
    return str(said)
