"""The rest of rules: of many idle rules only a few have a consumer; scouts wake the others.

While there are no more rules than turns, none rests and no scout reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from events.runner import Assignment
from events.scout import RestingRule, Scout, Skips
from penstock import Reader

AWAKE_MAX: Final = 32
"""Rules without anything to do that have a consumer nevertheless."""
LOOK_S: Final = 600.0
"""A rule that rests looks itself so often: for a reset of its group, or what another instance left."""
_Place = tuple[str, tuple[str, ...], tuple[int, ...]]


class RuleRest:
    """The rest of one rule."""

    def __init__(self, sleeper: RestingRule, scout: Scout, turns: trio.CapacityLimiter) -> None:
        self._sleeper = sleeper
        self._scout = scout
        self._turns = turns

    def may_begin(self) -> bool:
        """Whether it may rest as soon as it has nothing to do: others wait, or it is awake only for an event."""
        statistics = self._turns.statistics()
        is_in_the_way = bool(statistics.tasks_waiting) or self._sleeper not in statistics.borrowers
        return is_in_the_way and self._scout.sees_all

    def begin(self) -> None:
        """An event that is stored from now on wakes it."""
        self._sleeper.rest(self._scout.seen)

    def skips(self) -> Skips:
        """The offsets that it need not look at."""
        return self._sleeper.skips(self._scout.seen)

    async def turn(self) -> None:
        """Waits until it may run: for its turn, or for an event that is for it."""
        async with trio.open_nursery() as nursery:

            async def wait_for_event() -> None:
                await self._sleeper.called.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait_for_event)
            await self._turns.acquire_on_behalf_of(self._sleeper)
            nursery.cancel_scope.cancel()

    def give_up_turn(self) -> None:
        """Lets another rule have its turn."""
        if self._sleeper in self._turns.statistics().borrowers:
            self._turns.release_on_behalf_of(self._sleeper)

    async def sleep(self) -> None:
        """Waits for an event that is for it, or until it should look itself."""
        sleeper = self._sleeper
        with trio.move_on_after(LOOK_S):
            async with trio.open_nursery() as nursery:

                async def wait(event: trio.Event) -> None:
                    await event.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait, sleeper.called)
                nursery.start_soon(wait, sleeper.doubted)


class Resting:
    """All rules of an instance, as far as they rest.

    Args:
        open_reader: a reader of a topic, from its end on.
    """

    def __init__(self, open_reader: Callable[[str], Reader], awake_max: int = AWAKE_MAX) -> None:
        self._open_reader = open_reader
        self._awake_max = awake_max
        self._turns = trio.CapacityLimiter(awake_max)
        self._scouts: dict[_Place, tuple[Scout, trio.CancelScope]] = {}
        self._sleepers: dict[tuple[str, str], RestingRule] = {}

    def wake(self, bus: str, rule: str) -> None:
        """Has a rule look whether there is something to do."""
        sleeper = self._sleepers.get((bus, rule))
        if sleeper is not None:
            sleeper.doubt()

    @asynccontextmanager
    async def rests(self, assignment: Assignment, nursery: trio.Nursery) -> AsyncIterator[RuleRest]:
        """The rest of a rule that is at work. ``nursery``: for scouts, which end with their last rule."""
        place = assignment.bus, assignment.topics, assignment.sources
        if place not in self._scouts:
            self._scouts[place] = (
                Scout(assignment.topics, assignment.reading, self._open_reader),
                trio.CancelScope(),
            )
        scout, scope = self._scouts[place]
        sleeper = RestingRule(assignment.rule.pattern)
        name = assignment.bus, assignment.name
        self._sleepers[name] = sleeper
        scout.follow(assignment.name, sleeper)
        if len(self._sleepers) > self._awake_max:
            for one, its_scope in self._scouts.values():
                one.start(nursery, its_scope)
        rest = RuleRest(sleeper, scout, self._turns)
        try:
            yield rest
        finally:
            rest.give_up_turn()
            del self._sleepers[name]
            scout.forget(assignment.name)
            if not scout.has_rules:
                scope.cancel()
                del self._scouts[place]
