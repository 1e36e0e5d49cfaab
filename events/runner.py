"""One rule at work: reads its bus as a member of its consumer group, and delivers the events that its pattern chooses.

An event is passed when it is delivered, given back to the broker for a later attempt, or a dead letter with its reason:
all three durably. The breaker and the rate hold attempts back; waiting events stay in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import trio

from events.catalogue import Catalogue
from events.cloudevents import Event
from events.contract_book import FAULTS_CHARACTERS_MAX, ContractBook, flag
from events.counts import RuleCounts
from events.delivery import Breaker, Failed, Rate
from events.exact import RuleSender
from events.mapping import Reading, origin_of
from events.pushing import Pusher
from events.scout import Skips
from events.specs import Http, Rule, Target
from events.transform import Payload, TransformFailed
from penstock import Consumer, MessageQueue, ReceivedMessage, Retry
from penstock.errors import Fenced, InvalidMessage, PenstockError
from penstock.protocol.link import Links
from penstock.world import World
from topicmap.queues import RETRY_PREFIX

ATTEMPTS_MAX: Final = 1_000
"""Of the group, and the most that a broker takes: the rule's policy decides before."""
BATCH_MAX: Final = 64
READERS: Final = 16
IDLE_S: Final = 0.5
"""How often a rule that may rest looks whether there is nothing left to do."""
_log = logging.getLogger(__name__)


def group_of(bus: str, rule: str) -> str:
    """The consumer group that a rule is."""
    return f"event/{bus}/{rule}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a runner. ``topics``: the bus's, and those of its sources. ``created_ms``: when the rule was created.
    ``sources``: the revisions of the bus's sources."""

    bus: str
    name: str
    rule: Rule
    target: Target
    topics: tuple[str, ...]
    reading: Reading
    created_ms: int
    sources: tuple[int, ...] = ()


class Checks(NamedTuple):
    """The checks of each event that a rule reads."""

    contracts: ContractBook
    catalogue: Catalogue


class Rest(Protocol):
    """The rest of a rule: when it may rest, and the offsets that it may skip when it continues."""

    def may_begin(self) -> bool:
        """Whether it may rest as soon as it has nothing to do."""

    def begin(self) -> None:
        """It is about to rest: an event that is stored from now on wakes it."""

    def skips(self) -> Skips:
        """The offsets without an event for the rule."""


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
        checks: Checks,
        counts: RuleCounts,
        rest: Rest,
        world: World,
        servers: str,
        links: Links,
        session_s: float,
    ) -> None:
        self._assignment = assignment
        self._rule, self._target = assignment.rule, assignment.target
        self._pusher = pusher
        self._contracts, self._catalogue = checks
        self._counts = counts
        self._rest = rest
        self._busy = 0
        self._due = 0.0  # of the latest retry
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
            on_assigned=self._pass_over,
            rng=world.rng,
        )

    async def run(self) -> None:
        """Works until cancelled, or until there is nothing to do and the rule may rest. Raises ``PenstockError`` where
        the cluster does not let it."""
        async with self._consumer as consumer, trio.open_nursery() as nursery:
            self._counts.trouble = ""
            nursery.start_soon(self._stop_to_rest)
            if self._rule.is_ordered:
                await consumer.handle(self._deliver_in_order, concurrency=self._target.concurrency)
            else:
                await consumer.handle_batches(self._deliver, concurrency=READERS)
            nursery.cancel_scope.cancel()

    async def _stop_to_rest(self) -> None:
        """Ends the work when two looks in a row find nothing to do, with nothing handed out between them."""
        before: object = None
        while True:
            await trio.sleep(IDLE_S)
            if self._busy or self._clock.monotonic() < self._due or not self._rest.may_begin():
                before = None
                continue
            self._rest.begin()
            try:
                is_behind = any((await self._consumer.lag()).values())
            except PenstockError:
                is_behind = True
            now = None if is_behind or self._busy else self._consumer.positions
            if now is not None and now == before:
                self._consumer.stop()
                return
            before = now

    async def _pass_over(self, queues: Sequence[MessageQueue]) -> None:
        """Skips events that are not for the rule, if its group stands there."""
        skips, positions = self._rest.skips(), self._consumer.positions
        places = {
            queue: skips[queue][1]
            for queue in queues
            if queue in skips and skips[queue][0] <= positions.get(queue, -1) < skips[queue][1]
        }
        for queue, offset in places.items():
            await self._consumer.seek(queue, offset)
        if places:
            await self._consumer.commit(places)

    # -- selection

    def _wanted(self, messages: Sequence[ReceivedMessage]) -> list[tuple[ReceivedMessage, Event]]:
        found = []
        pattern, bus = self._rule.pattern, self._assignment.bus
        flags = self._contracts.violations(bus) == "flag"
        for message in messages:
            try:
                event = self._assignment.reading.event_of(message)
            except InvalidMessage:
                continue  # damaged or no message of ours: it is no event
            if event is None:
                continue
            self._catalogue.noticed(bus, event)
            if flags and (faults := self._faults(message, event)):
                flag(event, faults)
            if pattern is None or pattern.matches(event):
                found.append((message, event))
        return found

    def _faults(self, message: ReceivedMessage, event: Event) -> list[str]:
        """The reasons why an event breaks its contract. Devices and native programs store events that the HTTP face
        never sees, and a message does not say how it came; so all events are checked."""
        return self._contracts.faults(self._assignment.bus, event, _since_ms(message))

    # -- unordered

    async def _deliver(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Returns those that could neither be delivered nor given back."""
        self._busy += 1
        try:
            return await self._deliver_all(messages)
        finally:
            self._busy -= 1

    async def _deliver_all(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
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
            self._wait_for_retry(message, wait_s)
            await self._consumer.nack(message, wait_s, reason=reason)

    def _wait_for_retry(self, message: ReceivedMessage, wait_s: float) -> None:
        """The rule does not rest before a retry is due."""
        since_ms = message.stored_ms if self._rule.is_ordered else message.born_ms
        self._counts.given_back(since_ms, self._clock.wall_ms() + round(wait_s * 1000))
        self._due = max(self._due, self._clock.monotonic() + wait_s + IDLE_S)

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
        self._busy += 1
        try:
            await self._deliver_next(message)
        finally:
            self._busy -= 1

    async def _deliver_next(self, message: ReceivedMessage) -> None:
        for one, event in self._wanted([message]):
            for _, failure in await self._attempt([(one, event)]):
                wait_s, reason = self._next(message.attempts + 1, failure)
                if wait_s is not None:
                    self._wait_for_retry(message, wait_s)
                    raise Retry(wait_s, reason)
                await self._consumer.bury(message, reason=reason)
                self._counts.dead += 1

    # -- an attempt

    async def _attempt(self, part: Sequence[tuple[ReceivedMessage, Event]]) -> list[tuple[ReceivedMessage, Failed]]:
        """Tries to deliver; what failed, and why. Of several in one request all fail or none."""
        failures: list[tuple[ReceivedMessage, Failed]] = []
        made: list[tuple[ReceivedMessage, Event, Payload]] = []
        counts = self._counts
        rejects = self._contracts.violations(self._assignment.bus) == "reject"
        for message, event in part:
            counts.matched += not message.attempts
            counts.began(_since_ms(message))
            if rejects and (faults := self._faults(message, event)):
                told = f"the event breaks the contract of its type: {'; '.join(faults)[:FAULTS_CHARACTERS_MAX]}"
                failures.append((message, Failed(told, is_final=True)))
                continue
            try:
                made.append((message, event, self._rule.transform.apply(event, self._names)))
            except TransformFailed as error:
                failures.append((message, Failed(f"the transform failed: {error}", is_final=True)))
            except Exception as error:
                _log.exception("event/%s: an event cannot be transformed", self._assignment.name)
                told = f"the transform failed: unforeseen {type(error).__name__}: {error!s:.200}"
                failures.append((message, Failed(told, is_final=True)))
        try:
            if made:
                await self._wait_for_turn()
                await self._push(made, failures)
        finally:
            for message, _ in part:
                counts.ended(_since_ms(message))
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
        except Exception as error:  # a fault of this service: no other event waits for this one
            self._breaker.given_up()
            _log.exception("event/%s: an event cannot be delivered", self._assignment.name)
            told = Failed(f"unforeseen {type(error).__name__}: {error!s:.200}", is_final=True)
            failures += [(message, told) for message, _, _ in made]
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


def _since_ms(message: ReceivedMessage) -> int:
    """Since when an event waits. A retry was stored anew: of it, the sender's time is known."""
    return message.born_ms if message.queue.topic.startswith(RETRY_PREFIX) else message.stored_ms
