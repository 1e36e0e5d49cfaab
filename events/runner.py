"""One rule at work: reads its bus as a member of its consumer group, and has its target get what the pattern wants.

An event is passed when it is delivered, given back to the broker for a later attempt, or a dead letter with its reason:
all three durably. The breaker and the rate hold attempts back; what waits stays in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from events.cloudevents import Event
from events.counts import RuleCounts
from events.delivery import Breaker, Failed, Rate
from events.exact import RuleSender
from events.mapping import Reading, origin_of
from events.pushing import Pusher
from events.specs import Http, Rule, Target
from events.transform import Payload, TransformFailed
from penstock import Consumer, ReceivedMessage, Retry
from penstock.errors import Fenced, InvalidMessage, PenstockError
from penstock.protocol.link import Links
from penstock.world import World

ATTEMPTS_MAX: Final = 1_000
"""Of the group, and the most that a broker takes: the rule's policy decides before."""
BATCH_MAX: Final = 64
READERS: Final = 16
_log = logging.getLogger(__name__)


def group_of(bus: str, rule: str) -> str:
    """The consumer group that a rule is."""
    return f"event/{bus}/{rule}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a runner is to do. ``topics``: the bus's, and those of its sources. ``created_ms``: when the rule was."""

    bus: str
    name: str
    rule: Rule
    target: Target
    topics: tuple[str, ...]
    reading: Reading
    created_ms: int


class Runner:
    """A rule at work.

    Args:
        servers, links: the cluster.
        session_s: of the member that it is.
    """

    def __init__(
        self,
        assignment: Assignment,
        pusher: Pusher,
        counts: RuleCounts,
        world: World,
        servers: str,
        links: Links,
        session_s: float,
    ) -> None:
        self._assignment = assignment
        self._rule, self._target = assignment.rule, assignment.target
        self._pusher = pusher
        self._counts = counts
        self._clock, self._rng = world.clock, world.rng
        self._names = {"bus": assignment.bus, "rule": assignment.name}
        self._sender = RuleSender(group_of(assignment.bus, assignment.name), assignment.created_ms)
        self._breaker = Breaker()
        self._rate = Rate(self._target.rate_per_s)
        self._room = trio.CapacityLimiter(self._target.concurrency)
        to = self._target.to
        self._batch = to.batch if isinstance(to, Http) else BATCH_MAX
        start: Any = "earliest" if self._rule.start == "earliest" else assignment.created_ms
        selector = self._rule.pattern.selector() if self._rule.pattern else ""
        self._consumer = Consumer(
            group_of(assignment.bus, assignment.name),
            assignment.topics,
            servers=servers,
            links=links,
            start=start,
            filter=selector,
            force=True,
            attempts_max=ATTEMPTS_MAX,
            ordered=self._rule.is_ordered,
            session_s=session_s,
            batch_max=max(BATCH_MAX, self._batch),
            rng=world.rng,
        )

    async def run(self) -> None:
        """Works until cancelled. Raises ``PenstockError`` where the cluster does not let it."""
        async with self._consumer as consumer:
            self._counts.trouble = ""
            if self._rule.is_ordered:
                await consumer.handle(self._deliver_in_order, concurrency=self._target.concurrency)
            else:
                await consumer.handle_batches(self._deliver, concurrency=READERS)

    # -- what is wanted

    def _wanted(self, messages: Sequence[ReceivedMessage]) -> list[tuple[ReceivedMessage, Event]]:
        found = []
        pattern = self._rule.pattern
        for message in messages:
            try:
                event = self._assignment.reading.event_of(message)
            except InvalidMessage:
                continue  # damaged or no message of ours: it is no event
            if event is not None and (pattern is None or pattern.matches(event)):
                found.append((message, event))
        return found

    # -- unordered

    async def _deliver(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Returns those that could neither be delivered nor given back."""
        wanted, left = self._wanted(messages), list[ReceivedMessage]()
        parts = [wanted[at : at + self._batch] for at in range(0, len(wanted), self._batch)]
        if len(parts) == 1:
            await self._deliver_part(parts[0], left)
        elif parts:
            async with trio.open_nursery() as nursery:
                for part in parts:
                    nursery.start_soon(self._deliver_part, part, left)
        return left

    async def _deliver_part(self, part: Sequence[tuple[ReceivedMessage, Event]], left: list[ReceivedMessage]) -> None:
        async with self._room:
            for message, failure in await self._attempt(part):
                try:
                    await self._settle(message, failure)
                except Fenced:
                    pass  # another instance has it
                except PenstockError as error:
                    _log.warning("event/%s: cannot give an event back: %s", self._assignment.name, error)
                    left.append(message)

    async def _settle(self, message: ReceivedMessage, failure: Failed) -> None:
        wait_s, reason = self._next(message.attempts + 1, failure)
        if wait_s is None:
            await self._consumer.bury(message, reason=reason)
            self._counts.dead += 1
        else:
            await self._consumer.nack(message, wait_s, reason=reason)

    def _next(self, attempt: int, failure: Failed) -> tuple[float | None, str]:
        """Seconds until the next attempt, None for a dead letter; and the reason that it keeps."""
        if failure.is_final:
            return None, str(failure)
        wait_s = self._rule.retry.wait_s(attempt, self._rng)
        if wait_s is None:
            return None, f"{failure}, after {attempt} attempts"
        return max(wait_s, failure.after_s or 0.0), str(failure)

    # -- ordered

    async def _deliver_in_order(self, message: ReceivedMessage) -> None:
        for one, event in self._wanted([message]):
            for _, failure in await self._attempt([(one, event)]):
                wait_s, reason = self._next(message.attempts + 1, failure)
                if wait_s is not None:
                    raise Retry(wait_s, reason)
                await self._consumer.bury(message, reason=reason)
                self._counts.dead += 1

    # -- an attempt

    async def _attempt(self, part: Sequence[tuple[ReceivedMessage, Event]]) -> list[tuple[ReceivedMessage, Failed]]:
        """Tries to deliver; what failed, and why. Of several in one request all fail or none."""
        failures: list[tuple[ReceivedMessage, Failed]] = []
        made: list[tuple[ReceivedMessage, Event, Payload]] = []
        counts = self._counts
        for message, event in part:
            counts.matched += not message.attempts
            counts.began(message.stored_ms)
            try:
                made.append((message, event, self._rule.transform.apply(event, self._names)))
            except TransformFailed as error:
                failures.append((message, Failed(f"the transform failed: {error}", is_final=True)))
        try:
            if made:
                await self._wait_for_turn()
                await self._push(made, failures)
        finally:
            for message, _ in part:
                counts.ended(message.stored_ms)
        counts.failed += len(failures)
        return failures

    async def _push(
        self, made: Sequence[tuple[ReceivedMessage, Event, Payload]], failures: list[tuple[ReceivedMessage, Failed]]
    ) -> None:
        try:
            origins = [origin_of(message) for message, _, _ in made]
            payloads = [(event, payload) for _, event, payload in made]
            await self._pusher.push(self._target, self._assignment.name, self._sender, origins, payloads)
        except Failed as failure:
            failures += [(message, failure) for message, _, _ in made]
            if failure.is_final:
                self._breaker.succeeded()  # it answers: only this event is not wanted
            else:
                self._breaker.failed(self._clock.monotonic())
        except BaseException:
            self._breaker.given_up()
            raise
        else:
            self._counts.delivered += len(made)
            self._breaker.succeeded()
        self._counts.is_breaker_open = self._breaker.is_open

    async def _wait_for_turn(self) -> None:
        wait_s = self._rate.take(self._clock.monotonic())
        if wait_s:
            await trio.sleep(wait_s)
        while True:
            wait_s = self._breaker.wait_s(self._clock.monotonic())
            if not wait_s:
                return
            await trio.sleep(wait_s)
