"""Keeps a runner at work for each rule of the configuration, and no other.

A change of a rule, its target or its bus's sources ends the runner and starts another, which continues where the group
is. A rule that cannot run gives its reason and is tried again; it does not stop others. Of many rules the idle ones
rest without a consumer, until the scout of their bus finds an event for them, and look by themselves now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from events.catalogue import Catalogue
from events.config_log import ConfigLog
from events.counts import RuleCounts
from events.facts import NONE, Fact, Facts
from events.mapping import Reading, Source
from events.problems import Problem
from events.resting import Resting
from events.runner import Assignment, Rest, Runner, group_of
from events.specs import Rule, Target
from penstock import Admin
from penstock.errors import PenstockError

AGAIN_S: Final = 1.0
FORGET_TRIES: Final = 10
NOTE_S: Final = 1.0
_log = logging.getLogger(__name__)
Place = tuple[str, str]
"""Bus and rule."""


class _Running(NamedTuple):
    revisions: tuple[int, ...]
    scope: trio.CancelScope
    ended: trio.Event


class Rules:
    """All rules at work at this instance.

    Args:
        make: a runner for an assignment.
        resting: when rules rest.

    Attributes:
        counts: of each rule, by bus and name.
    """

    def __init__(
        self,
        config: ConfigLog,
        admin: Admin,
        make: Callable[[Assignment, RuleCounts, Rest], Runner],
        resting: Resting,
    ) -> None:
        self.counts: dict[Place, RuleCounts] = {}
        self._config = config
        self._admin = admin
        self._make = make
        self._resting = resting
        self._running: dict[Place, _Running] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                seen = self._config.facts.changes
                await self._arrange(nursery)
                while self._config.facts.changes == seen:
                    await self._config.changed()

    async def _arrange(self, nursery: trio.Nursery) -> None:
        facts = self._config.facts
        wanted = {(one.bus, one.name): one for one in facts.all("rule")}
        for place, running in list(self._running.items()):
            if place not in wanted or revisions_of(facts, wanted[place]) != running.revisions:
                running.scope.cancel()
                await running.ended.wait()
                del self._running[place]
                if place not in wanted:
                    del self.counts[place]
                    nursery.start_soon(self._forget, place)
        for place, fact in wanted.items():
            if place not in self._running:
                running = _Running(revisions_of(facts, fact), trio.CancelScope(), trio.Event())
                self._running[place] = running
                counts = self.counts.setdefault(place, RuleCounts())
                nursery.start_soon(self._keep, fact, counts, running, nursery)

    def wake(self, bus: str, rule: str) -> None:
        """Has a rule that rests look whether there is something to do."""
        self._resting.wake(bus, rule)

    async def _keep(self, fact: Fact, counts: RuleCounts, running: _Running, nursery: trio.Nursery) -> None:
        with running.scope:
            while True:
                try:
                    assignment = assignment_of(self._config.facts, fact)
                    counts.trouble = "" if assignment else "disabled"
                    if assignment is None:
                        await trio.sleep_forever()
                    await self._work(assignment, counts, nursery)
                except (PenstockError, Problem) as error:
                    counts.trouble = str(error)
                    _log.warning("the rule %s of %s does not run: %s", fact.name, fact.bus, error)
                except Exception as error:
                    counts.trouble = f"{type(error).__name__}: {error}"
                    _log.exception("the rule %s of %s does not run", fact.name, fact.bus)
                counts.waiting.clear()
                counts.is_resting = False
                await trio.sleep(AGAIN_S)
        counts.waiting.clear()
        running.ended.set()

    async def _work(self, assignment: Assignment, counts: RuleCounts, nursery: trio.Nursery) -> None:
        """Runs a rule whenever there may be something to do."""
        async with self._resting.rests(assignment, nursery) as rest:
            while True:
                await rest.turn()
                counts.is_resting = False
                await self._make(assignment, counts, rest).run()
                rest.give_up_turn()
                counts.is_resting = True
                await rest.sleep()

    async def _forget(self, place: Place) -> None:
        """Deletes the group of a rule that is gone, once its other members have left."""
        for _ in range(FORGET_TRIES):
            if self._config.facts.get("rule", *place) is not None:
                return
            try:
                await self._admin.delete_group(group_of(*place))
                return
            except PenstockError as error:
                _log.info("the group of the rule %s is still there: %s", place, error)
            await trio.sleep(AGAIN_S)


def revisions_of(facts: Facts, rule: Fact) -> tuple[int, ...]:
    """The revisions that a runner was made of: if one changes, another runner is made."""
    target = facts.get("target", rule.bus, str(rule.spec.get("target")))
    sources = [one.revision for one in facts.all("source", rule.bus)]
    return (rule.revision, target.revision if target else NONE, *sources)


def assignment_of(facts: Facts, fact: Fact) -> Assignment | None:
    """The task of a rule's runner; None if the rule is disabled. Raises ``Problem`` where its target is missing."""
    rule = Rule.of(fact.spec)
    if not rule.is_enabled:
        return None
    target = facts.get("target", fact.bus, rule.target)
    if target is None:
        raise Problem(404, "no-target", f"there is no target {rule.target} in the bus {fact.bus}")
    stood = facts.all("source", fact.bus)
    sources = [Source(one.spec) for one in stood]
    topics = tuple(dict.fromkeys([fact.bus, *[one.topic for one in sources]]))
    revisions = tuple([one.revision for one in stood])
    to = Target.of(target.spec)
    return Assignment(fact.bus, fact.name, rule, to, topics, Reading(sources), fact.created_ms, revisions)


async def keep_catalogue(catalogue: Catalogue, config: ConfigLog) -> None:
    """Writes types that are new into the configuration, until cancelled."""
    while True:
        for bus, of_type, spec in catalogue.take_new():
            try:
                await config.write("type", bus, of_type, spec, NONE)
            except Problem:
                pass  # another instance was faster
            except PenstockError as error:
                _log.info("the type %s is not noted: %s", of_type, error)
            except Exception:  # events of any kind come here: none may end the service
                _log.exception("the type %s is not noted", of_type)
        await trio.sleep(NOTE_S)
