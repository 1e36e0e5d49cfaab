"""Fold of messages that members gave back: for each group those that its position has not passed yet.

A member that loses the answer to a give-back repeats it. Its retry is stored already, so the broker repeats the first
answer. The stored record itself names the give-back: a sleeping retry in its fact, any other retry and a dead letter by
``FLAG_GIVEN_BACK`` and the property ``GIVEN_BACK``. So one append stores both.

Bounded: of a queue the highest offsets are known, and where there are too many in all, groups are forgotten.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from broker.groups import fold as offsets
from broker.kernel.fold import fact_of
from broker.kernel.frozen import Table
from broker.store.records import NO_CHANGE, Change, Stored
from broker.timers.fold import GivenBack
from broker.topics.fold import TopicGone
from penstock.protocol.message import FLAG_GIVEN_BACK, property_of
from penstock.protocol.properties import GIVEN_BACK
from penstock.protocol.requests.retries import SentBack
from topicmap.queues import SYSTEM_PREFIX

IN_QUEUE_MAX: Final = 4_096
"""Maximum number for a group's queue; beyond it the higher half stays."""
IN_ALL_MAX: Final = 100_000
_GIVEN_BACK: Final = GIVEN_BACK.encode()

_Answers = dict[int, tuple[int, int]]
"""By offset: attempt and due time."""


class Returns:
    """Give-backs of messages that groups have not passed."""

    KEY: Final = "given_back"
    TOPICS: Final = (offsets.TOPIC,)
    FLAGS: Final = FLAG_GIVEN_BACK

    def __init__(self) -> None:
        self._groups: Table[dict[str, _Answers]] = Table()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, group: str, queue: str, offset: int) -> SentBack | None:
        """The answer to the give-back of this message; ``None`` without one."""
        found = self._groups.get(group, {}).get(queue, {}).get(offset)
        return None if found is None else SentBack(*found)

    def apply(self, record: Stored) -> Change:
        if record.topic.startswith(SYSTEM_PREFIX):
            if not self._groups:
                return NO_CHANGE
            group, rows = fact_of(record)[:2]
            if group in self._groups:
                self._passed(group, rows)
        elif given := given_back_of(record.properties):
            self._note(given)
        return NO_CHANGE

    def follow(self, change: Change) -> Change:
        """Takes in retries that sleep; forgets queues that are gone."""
        for event in change.events:
            if isinstance(event, GivenBack):
                self._note(event)
            elif isinstance(event, TopicGone):
                self._end(event.queues)
        return NO_CHANGE

    def _note(self, given: GivenBack) -> None:
        self._groups.setdefault(given.group, {})
        answers = self._groups.own(given.group, _copied).setdefault(given.queue, {})
        self._count -= len(answers)
        answers[given.offset] = given.attempt, given.due_ms
        if len(answers) > IN_QUEUE_MAX:
            for offset in sorted(answers)[: IN_QUEUE_MAX // 2]:
                del answers[offset]
        self._count += len(answers)
        while self._count > IN_ALL_MAX:
            first = min(self._groups)  # any, as long as it is the same at every replay
            self._count -= sum(map(len, self._groups.pop(first).values()))

    def _passed(self, group: str, rows: list[Any]) -> None:
        """A group's positions moved; without any the group is deleted."""
        if not rows:
            self._count -= sum(map(len, self._groups.pop(group).values()))
        for queue, position in rows:
            answers = self._groups[group].get(queue)
            if answers and min(answers) < position:
                answers = self._groups.own(group, _copied)[queue]
                for offset in [one for one in answers if one < position]:
                    del answers[offset]
                    self._count -= 1
                self._drop_empty(group, queue)
                if group not in self._groups:
                    return

    def _end(self, queues: Iterable[str]) -> None:
        for queue in queues:
            for group in [name for name, known in self._groups.items() if queue in known]:
                known = self._groups.own(group, _copied)
                self._count -= len(known[queue])
                known[queue].clear()
                self._drop_empty(group, queue)

    def _drop_empty(self, group: str, queue: str) -> None:
        known = self._groups[group]
        if not known[queue]:
            del known[queue]
        if not known:
            del self._groups[group]

    def freeze(self) -> Iterator[bytes]:
        return self._groups.freeze(_row)

    def restore(self, snapshot: list[Any] | None) -> None:
        self._groups = Table(
            (group, {queue: _answers(rows) for queue, rows in known}) for group, known in snapshot or ()
        )
        self._count = sum([len(answers) for known in self._groups.values() for answers in known.values()])


def property_for(given: GivenBack) -> str:
    """The property that names a stored message's give-back."""
    return f"{given.attempt}:{given.due_ms}:{given.offset}:{_encoded(given.group)}:{given.queue}"


def given_back_of(properties: bytes) -> GivenBack | None:
    """The give-back that a stored message names, ``None`` without one."""
    attempt, due_ms, offset, group, queue = (property_of(properties, _GIVEN_BACK).split(b":", 4) + [b""] * 5)[:5]
    if not (attempt.isdigit() and due_ms.isdigit() and offset.isdigit() and queue):
        return None
    return GivenBack(_name_in(group), queue.decode(), int(offset), int(attempt), int(due_ms))


@lru_cache(maxsize=256)
def _name_in(encoded: bytes) -> str:
    return urlsafe_b64decode(encoded).decode("utf-8", "surrogatepass")


@lru_cache(maxsize=256)
def _encoded(name: str) -> str:
    return urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _copied(known: dict[str, _Answers]) -> dict[str, _Answers]:
    return {queue: dict(answers) for queue, answers in known.items()}


def _row(group: str, known: dict[str, _Answers]) -> list[Any]:
    return [group, [[queue, sorted([[at, *answer] for at, answer in known[queue].items()])] for queue in sorted(known)]]


def _answers(rows: list[Any]) -> _Answers:
    return {offset: (attempt, due_ms) for offset, attempt, due_ms in rows}
