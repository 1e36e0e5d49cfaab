"""Messages of the world in ``messaging.py`` that a group cannot work off at once, and what each is promised.

How often a message fails is decided when it is sent. Checked: each that was acknowledged is worked off, or is a dead
letter if it always fails; it comes with each number of attempts up to there, with no other, and only after it was given
back with one less; not before its delay is over, and in time where the broker is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio

from penstock import Consumer, Producer
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from tests.simulation.messaging import RETRY_DELAYS_S, SERVERS, Messaging, Workload

ATTEMPTS_MAX: Final = 4
ALWAYS: Final = 99
GROUP: Final = "crew"


@dataclass
class Task:
    """A message to work off. ``fails``: how often. ``given``: for each attempt after which it was given back, the
    earliest right time at which it may come again. ``reasons``: what was said at the last attempt."""

    fails: int
    is_acknowledged: bool = False
    is_done: bool = False
    given: dict[int, int] = field(default_factory=dict)
    reasons: set[str] = field(default_factory=set)


class Retries(Workload):
    """A group whose members fail."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._tasks: dict[bytes, Task] = {}
        self._letters: dict[bytes, ReceivedMessage] = {}

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._produce]

    def lasting(self) -> Sequence[Callable[[], Any]]:
        members = [partial(self._member, number) for number in range(self.world.options.members)]
        return [*members, *(partial(self.world.read_letters, number, GROUP, self._take_letter) for number in range(2))]

    async def _produce(self) -> None:
        rng, clock = self.rng, self.world.sim.clock
        ends_at = trio.current_time() + self.world.options.load_s
        async with Producer(servers=SERVERS, timeout_s=30.0, clock=clock, rng=self.world.sim.rng("work")) as producer:
            while trio.current_time() < ends_at:
                body = self.body("task", len(self._tasks))
                self._tasks[body] = Task(rng.choice((0, 1, 2, 3, ALWAYS)))
                with contextlib.suppress(PenstockError):
                    await producer.send("work", body, key=body[:9])
                    self._tasks[body].is_acknowledged = True
                await trio.sleep(rng.uniform(0.0, ends_at / 10))

    async def _member(self, number: int) -> None:
        clock, rng = self.world.sim.clock, self.world.sim.rng(f"member {number}")
        while True:
            with contextlib.suppress(PenstockError), trio.move_on_after(self.rng.uniform(5.0, 60.0)):
                async with Consumer(
                    GROUP,
                    "work",
                    servers=SERVERS,
                    start="earliest",
                    session_s=12.0,
                    attempts_max=ATTEMPTS_MAX,
                    clock=clock,
                    rng=rng,
                ) as consumer:
                    async for batch in consumer:
                        for message in batch:
                            await self._work(consumer, message)
                        await consumer.commit()
            await trio.sleep(0.5)

    async def _work(self, consumer: Consumer, message: ReceivedMessage) -> None:
        """Raises ``PenstockError`` where the message was neither worked off nor given back."""
        self.world.note(message)
        task, attempt = self._tasks[message.body], message.attempts
        what = f"attempt {attempt} of {message.body[:12]!r}: {task}"
        assert attempt < ATTEMPTS_MAX, f"{what} is one too many"
        assert len(self.world.stored(message.body)) <= ATTEMPTS_MAX, f"{what} is stored more often than it is tried"
        if attempt:
            assert attempt - 1 in task.given, f"{what} was not given back before"
            if not self.world.booted_wrong:
                at_ms = min(message.stored_ms, self.world.right_ms())
                assert at_ms >= task.given[attempt - 1] - self.world.tolerance_ms, f"{what} is early"
        if attempt >= task.fails:
            task.is_done = True
            return
        after_s = self.rng.choice((None, None, 0.0, 0.7, 20.0))
        delay_s = RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)] if after_s is None else after_s
        may_come_ms = self.world.right_ms() + int(delay_s * 1000)
        task.given[attempt] = min(may_come_ms, task.given.get(attempt, may_come_ms))
        reason = f"failed at {may_come_ms}"
        if attempt == ATTEMPTS_MAX - 1:
            task.reasons.add(reason)
        with contextlib.suppress(Fenced):
            sent_back = await consumer.nack(message, after_s, reason=reason)
            self.world.events["given back"] += 1
            assert sent_back.attempt == attempt + 1, f"{what}: {sent_back}"
            assert bool(sent_back.due_ms) == (attempt + 1 < ATTEMPTS_MAX), f"{what}: {sent_back}"
            self.world.moments.tell("settled", int(message.queue.broker[-1]))

    def _take_letter(self, letter: ReceivedMessage) -> None:
        before = self._letters.setdefault(letter.body, letter)
        assert before.offset == letter.offset, f"two dead letters of {letter.body[:12]!r}"
        self.world.events["dead letters"] += 1

    def missing(self) -> list[str]:
        lost = []
        for body, task in self._tasks.items():
            is_there = body in self._letters if task.fails >= ATTEMPTS_MAX else task.is_done
            if task.is_acknowledged and not is_there:
                lost.append(f"{body[:12]!r}: {task}")
        return lost

    def check(self) -> None:
        assert not (lost := self.missing()), f"given back and gone: {lost[:3]}"
        for body, task in self._tasks.items():
            attempts = sorted({seen.message.attempts for seen in self.world.seen.get(body, [])})
            what = f"{body[:12]!r}: {task}, seen with {attempts}"
            assert attempts == list(range(len(attempts))), f"{what}: an attempt is missing"
            letter = self._letters.get(body)
            if letter is None:
                continue
            assert task.fails >= ATTEMPTS_MAX, f"{what} is a dead letter"
            assert len(attempts) == ATTEMPTS_MAX, f"{what} is a dead letter too early"
            assert letter.attempts == ATTEMPTS_MAX, f"{what}: its letter says {letter.attempts}"
            assert letter.properties["REASON"] in task.reasons, f"{what}: its letter says why wrongly"
            assert letter.properties["ORIGIN_TOPIC"] == "work", what
