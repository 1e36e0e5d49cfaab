"""Recognises messages of a repeated begin that are in a half already: their producer lost the first answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.producers.repeats import Repeats
from broker.producers.window import Numbers
from broker.store.destinations import Destination
from broker.transactions.fold import Halves
from penstock.errors import InvalidMessage, MessageForgotten, OutcomeStands
from penstock.protocol.requests.transactions import HalfBegun, HalfPart
from penstock.protocol.runs import Run


class Found(NamedTuple):
    """Halves that have the runs of a begin. ``ids``: of each run its half, 0 for none. ``numbers``: those of the runs
    in no half."""

    ids: list[int]
    numbers: list[Numbers]

    def new_of(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that are in no half."""
        return [run for run, id in zip(runs, self.ids, strict=True) if not id]

    def answer(self, runs: Sequence[Run], new_id: int) -> HalfBegun:
        """The half of each run: one for all, or each from its first message on. ``new_id``: of those that are new."""
        ids, at, parts = [id or new_id for id in self.ids], 0, list[HalfPart]()
        for run, id in zip(runs, ids, strict=True):
            if not parts or parts[-1].id != id:
                parts.append(HalfPart(at, id))
            at += len(run.bodies)
        return HalfBegun(ids[0], (), tuple(parts) if len(parts) > 1 else ())


class Begun:
    """Look-up of the runs of halves that begin, by the numbers of their messages."""

    def __init__(self, halves: Halves, repeats: Repeats) -> None:
        self._halves = halves
        self._repeats = repeats

    def look_at(self, group: str, runs: Sequence[Numbers | None]) -> Found:
        """``runs``: ``None`` for one without numbers. Raises ``OutcomeStands`` where a half with some of the messages
        has ended, ``MessageForgotten`` where it is not known whether they are stored."""
        ids: list[int] = []
        new: list[Numbers] = []
        for numbers in runs:
            id = 0 if numbers is None else self._half_of(group, numbers)
            ids.append(id)
            if numbers is None or id:
                self._repeats.note_repeated(numbers.messages if numbers else 0)
                continue
            if any([_overlap(numbers, other) for other in new]):
                raise InvalidMessage("one request has this unique id twice")
            last = new[-1] if new else None
            if last is not None and last.producer == numbers.producer and last.end == numbers.first:
                new[-1] = last._replace(messages=last.messages + numbers.messages)
            else:
                new.append(numbers)
        return Found(ids, new)

    def _half_of(self, group: str, numbers: Numbers) -> int:
        are_stored = self._repeats.are_stored(numbers)
        if are_stored is False:
            return 0
        id = self._halves.holding(numbers)
        half = self._halves.get(id)
        if half is not None and half.group != group:
            raise InvalidMessage(f"the half {id} of another group has these messages")
        if half is None and are_stored:
            raise OutcomeStands("these messages were sent before, and their transaction has an outcome")
        if half is None:
            raise MessageForgotten("these messages may be in a half already; the broker does not know any more")
        return id


def numbers_of(
    runs: Sequence[Run], destinations: Sequence[Destination], sequenced: Sequence[int]
) -> list[Numbers | None]:
    """The numbers of each accepted run, ``None`` for one that is not ``sequenced``."""
    return [
        Numbers(to.producer, run.number, len(run.bodies)) if counts else None
        for run, to, counts in zip(runs, destinations, sequenced, strict=True)
    ]


def _overlap(one: Numbers, other: Numbers) -> bool:
    return one.producer == other.producer and one.first < other.end and other.first < one.end
