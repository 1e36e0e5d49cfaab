"""Fold of halves: messages that are stored and in no queue until their producer commits them or rolls them back.

A half is a system record whose position is its id for ever. A message that was committed says so itself (``FLAG_WOKEN``
and the property ``HALF``), as a delayed message does that woke; a rollback is a record. The first outcome stands. The
latest outcomes are remembered, so the answer to a second one can name the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import msgpack

from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.producers.window import Numbers, NumbersUsed
from broker.store.records import NO_CHANGE, Change, Stored
from penstock.protocol.message import FLAG_WOKEN, HALF, property_of
from topicmap.queues import SYSTEM_PREFIX

TOPIC: Final = "%sys%halves"
BEGIN, ROLLBACK, ROUND, PARK, REOPEN, CARRY = "begin", "rollback", "round", "park", "reopen", "carry"
COMMITTED, ROLLED_BACK = "commit", "rollback"
OUTCOMES_MAX: Final = 10_000
_HALF: Final = HALF.encode()


class Half(NamedTuple):
    """A half. ``position``, ``size``: where its latest record is, and the bytes of that frame. ``rounds``: how often it
    was due to be checked; ``checks``: how often a producer was asked. ``parked``: why it is only for an operator to
    decide, empty while it is open. ``messages``: how many it has, as runs; 0 for a single one, a whole
    record. ``numbers``: those that its messages have of their producers."""

    group: str
    position: int
    size: int
    born_ms: int
    rounds: int = 0
    checks: int = 0
    parked: str = ""
    messages: int = 0
    numbers: tuple[Numbers, ...] = ()


class Halves:
    """All halves of a broker, by id, and the outcomes of the latest others.

    Attributes:
        bytes: of the frames of all halves.
    """

    KEY: Final = "halves"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = FLAG_WOKEN

    def __init__(self) -> None:
        self._halves: Table[Half] = Table()
        self._outcomes: dict[int, str] = {}
        self._woken: dict[int, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._halves)

    # ------------------------------------------------------------ facts

    @staticmethod
    def begin(group: str, messages: bytes, count: int = 0, numbers: Sequence[Numbers] = ()) -> list[Any]:
        """Body of the record that holds a half: a whole record, or runs with this number of messages; and the numbers
        of those that are stored once however often they are sent."""
        body: list[Any] = [BEGIN, group, messages, count] if count or numbers else [BEGIN, group, messages]
        return [*body, [list(one) for one in numbers]] if numbers else body

    @staticmethod
    def rollback(id: int) -> list[Any]:
        """Body of the record that ends a half without a message."""
        return [ROLLBACK, id]

    @staticmethod
    def round(id: int, *, is_asked: bool) -> list[Any]:
        """Body of the record that says: a half was due to be checked, and a producer was asked or there was none."""
        return [ROUND, id, is_asked]

    @staticmethod
    def set_aside(id: int, reason: str) -> list[Any]:
        """Body of the record that leaves a half to an operator."""
        return [PARK, id, reason]

    @staticmethod
    def reopen(id: int) -> list[Any]:
        """Body of the record that has a parked half checked again."""
        return [REOPEN, id]

    @staticmethod
    def carry(id: int, messages: bytes) -> list[Any]:
        """Body of the record in which a half is held from now on."""
        return [CARRY, id, messages]

    @staticmethod
    def messages_in(fact: list[Any]) -> bytes:
        """What the body of such a record holds."""
        messages: bytes = fact[2]
        return messages

    def apply(self, record: Stored) -> Change:
        if record.flag & FLAG_WOKEN and not record.topic.startswith(SYSTEM_PREFIX):
            id = property_of(record.properties, _HALF)
            if id.isdigit():
                self._wake(int(id), record.messages)
            return NO_CHANGE
        kind, first, *more = fact_of(record)
        if kind == BEGIN:
            count, numbers = more[1] if len(more) > 1 else 0, _numbers(more[2] if len(more) > 2 else ())
            begun = Half(first, record.position, record.size, record.stored_ms, messages=count, numbers=numbers)
            self._put(record.position, begun)
            used = NumbersUsed(numbers, record.stored_ms, record.position)
            return Change(events=(used,)) if numbers else NO_CHANGE
        half = self.get(first)
        if half is None:
            return NO_CHANGE
        if kind == ROLLBACK:
            self._end(first, ROLLED_BACK)
        elif kind == ROUND:
            self._put(first, half._replace(rounds=half.rounds + 1, checks=half.checks + bool(more[0])))
        elif kind == PARK:
            self._put(first, half._replace(parked=more[0]))
        elif kind == REOPEN:
            self._put(first, half._replace(parked="", rounds=0, checks=0))
        elif kind == CARRY:
            self._put(first, half._replace(position=record.position, size=record.size))
        return NO_CHANGE

    def _put(self, id: int, half: Half) -> None:
        before = self._halves.get(_key(id))
        self.bytes += half.size - (before.size if before else 0)
        self._halves[_key(id)] = half

    def _wake(self, id: int, count: int) -> None:
        """More messages of a half are stored; with the last one it is committed."""
        half = self.get(id)
        if half is not None:
            woken = self._woken.get(id, 0) + count
            if woken < half.messages:
                self._woken[id] = woken
            else:
                self._end(id, COMMITTED)

    def _end(self, id: int, outcome: str) -> None:
        half = self._halves.pop(_key(id), None)
        self._woken.pop(id, None)
        if half is None:
            return
        self.bytes -= half.size
        self._outcomes[id] = outcome
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    # ------------------------------------------------------------ what it knows

    def get(self, id: int) -> Half | None:
        """The half of this id, if it is one still."""
        return self._halves.get(_key(id))

    def outcome(self, id: int) -> str:
        """The outcome of a half: ``"commit"`` or ``"rollback"``; empty where that is not known."""
        return COMMITTED if id in self._woken else self._outcomes.get(id, "")

    def woken(self, id: int) -> int:
        """How many messages of a half are stored, while not all are."""
        return self._woken.get(id, 0)

    def unfinished(self) -> list[int]:
        """Halves whose commit was cut off: some of their messages are stored."""
        return list(self._woken)

    def items(self) -> Iterator[tuple[int, Half]]:
        """Ids and halves."""
        return ((int(key), half) for key, half in self._halves.items())

    def holding(self, numbers: Numbers) -> int:
        """The half that has the messages with these numbers, 0 if none has."""
        for id, half in self.items():
            if any([own.covers(numbers) for own in half.numbers]):
                return id
        return 0

    def after(self, id: int, count_max: int) -> list[tuple[int, Half]]:
        """Halves behind an id, by id."""
        keys = sorted(key for key in self._halves if key > _key(id))
        return [(int(key), self._halves[key]) for key in islice(keys, count_max)]

    def before(self, position: int, count_max: int) -> list[tuple[int, Half]]:
        """Halves whose latest record is before a log position: those to carry before the log begins there."""
        return list(islice(((id, half) for id, half in self.items() if half.position < position), count_max))

    # ------------------------------------------------------------ snapshots

    def freeze(self) -> Iterator[bytes]:
        outcomes, rows = [[id, outcome] for id, outcome in self._outcomes.items()], self._halves.freeze(_row)
        woken = sorted([id, count] for id, count in self._woken.items())

        def pieces() -> Iterator[bytes]:
            yield cast(bytes, msgpack.Packer().pack_array_header(3)) + cast(bytes, msgpack.packb(outcomes))
            yield from rows
            yield cast(bytes, msgpack.packb(woken))

        return pieces()

    def restore(self, snapshot: Sequence[Any] | None) -> None:
        outcomes, rows, *later = snapshot or ((), ())
        self._woken = {id: count for id, count in (later[0] if later else ())}
        self._outcomes = {id: outcome for id, outcome in outcomes}
        self._halves = Table((_key(id), _half(half)) for id, *half in rows)
        self.bytes = sum(half.size for half in self._halves.values())


def _key(id: int) -> str:
    """A name for an id; names are in the order of ids."""
    return f"{id:020d}"


def _half(row: list[Any]) -> Half:
    half = Half(*row)
    return half._replace(numbers=_numbers(half.numbers))


def _numbers(rows: Iterable[Sequence[Any]]) -> tuple[Numbers, ...]:
    return tuple([Numbers(*row) for row in rows])


def _row(key: str, half: Half) -> list[Any]:
    return [int(key), *half]
