"""Plain and delayed messages of the world in ``messaging.py``, and what each is promised.

Plain: what was acknowledged comes, at the place that its receipt names, and a key's messages in their order. Delayed:
never early; late within a bound where the broker is there; once; never after a cancel that was acknowledged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from penstock import DelayedReceipt, Message, Producer
from penstock.errors import PenstockError, SendManyError, StorageFull, TimerFired, TimerNotFound
from penstock.protocol.message import encode_message
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.timers import CancelTimer, SetTimers, TimerSet, TimersSet
from tests.simulation.messaging import SERVERS, Messaging, Workload

MINUTE_MS: Final = 60_000
LONG_MS: Final = 100_000


class Plain(Workload):
    """Keyed messages of two producers."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._keys: dict[bytes, str] = {}  # in the order of sending
        self._acknowledged: dict[bytes, tuple[str, str, int, int]] = {}
        self._failed: set[bytes] = set()

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [lambda: self._produce("a"), lambda: self._produce("b")]

    async def _produce(self, name: str) -> None:
        clock, rng = self.world.sim.clock, self.world.sim.rng(f"plain {name}")
        ends_at = trio.current_time() + self.world.options.load_s
        sent = 0
        async with Producer(servers=SERVERS, timeout_s=30.0, clock=clock, rng=rng) as producer:
            while trio.current_time() < ends_at:
                batch = []
                for _ in range(rng.randint(1, 4)):
                    key = f"{name}{rng.randrange(3)}"
                    body = self.body(f"{sent:06d}", key)
                    self._keys[body] = key
                    batch.append(Message("plain", body, key=key))
                    sent += 1
                await self._send(producer, batch)
                await trio.sleep(rng.uniform(0.0, ends_at / 12))

    async def _send(self, producer: Producer, batch: list[Message]) -> None:
        failures: dict[int, PenstockError] = {}
        try:
            receipts: Any = await producer.send_many(batch)
        except SendManyError as error:
            receipts, failures = error.receipts, error.failures
        for at, message in enumerate(batch):
            if at not in failures:
                queue = receipts[at].queue
                self._acknowledged[message.body] = (queue.broker, queue.topic, queue.number, receipts[at].offset)
                self.world.moments.tell("stored", int(queue.broker[-1]))
            elif not failures[at].unknown:
                self._failed.add(message.body)

    def missing(self) -> list[str]:
        # where the fate of a sending was unknown the message may stand twice, and its receipt tells the later place
        return [f"plain at {place}" for place in self._acknowledged.values() if place not in self.world.places]

    def check(self) -> None:
        assert not (lost := self.missing()), lost[:3]
        for body, place in self._acknowledged.items():
            assert self.world.places[place] == body, f"{body[:20]!r} is not where its receipt says, {place}"
        for body in self._failed:
            assert body not in self.world.seen, f"{body[:20]!r} was told to have failed"
        for key in sorted(set(self._keys.values())):
            order = [body for body in self.world.seen if self._keys.get(body) == key]
            assert order == sorted(order), f"messages of {key} were delivered out of order"


@dataclass(slots=True)
class Delayed:
    """A delayed message. ``not_before_ms``: by the right time. ``timer``: what the broker said, if it did.
    ``cancel``: what became of cancels: ``"asked"``, ``"done"`` or ``"fired"``."""

    broker: int
    not_before_ms: int
    timer: TimerSet | None = None
    is_refused: bool = False
    cancel: str = ""


class Delays(Workload):
    """Delayed messages, some of them cancelled."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._sent: dict[bytes, Delayed] = {}

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._send_all, self._cancel_some]

    def _delay_ms(self) -> int:
        """Delays with edges in them: none, next to none, and around the border of a minute."""
        rng, now_ms = self.rng, self.world.right_ms()
        to_minute_ms = MINUTE_MS - now_ms % MINUTE_MS
        around = to_minute_ms + rng.choice((-1, 0, 1))
        return rng.choice((0, 1, 50, 1_000, around, around, rng.randrange(10_000), rng.randrange(LONG_MS)))

    async def _send_all(self) -> None:
        rng, world = self.rng, self.world
        ends_at = trio.current_time() + world.options.load_s
        while trio.current_time() < ends_at:
            broker, from_now = rng.randrange(2), rng.random() < 0.5
            delays = [max(0, self._delay_ms()) for _ in range(rng.randint(1, 5))]
            sent_ms = world.right_ms()
            bodies = [self.body("late", len(self._sent) + at, delay) for at, delay in enumerate(delays)]
            for body, delay_ms in zip(bodies, delays, strict=True):
                self._sent[body] = Delayed(broker, sent_ms + delay_ms)
            due_ms = tuple(delay_ms if from_now else sent_ms + delay_ms for delay_ms in delays)
            records = [encode_message(Message("late", body, key=body[:9])) for body in bodies]
            try:
                answer = await world.ask(broker, SetTimers(due_ms, from_now, b"".join(records)), TimersSet)
            except PenstockError as error:
                for body in bodies:
                    self._sent[body].is_refused = not error.unknown
            else:
                refused = {one.at: one.code for one in answer.refused}
                assert set(refused.values()) <= {StorageFull.code}, answer.refused
                for at, (body, timer) in enumerate(zip(bodies, answer.timers, strict=True)):
                    self._sent[body].is_refused = at in refused
                    self._sent[body].timer = timer if at not in refused else None
                world.moments.tell("stored", broker)
            await trio.sleep(rng.uniform(0.0, ends_at / 12))

    async def _cancel_some(self) -> None:
        rng = random.Random(self.rng.random())
        ends_at = trio.current_time() + self.world.options.load_s
        while trio.current_time() < ends_at:
            await trio.sleep(rng.uniform(0.0, ends_at / 10))
            known = [one for one in self._sent.values() if one.timer is not None]
            if known:
                await self._cancel(rng.choice(known[-8:]))

    async def _cancel(self, one: Delayed) -> None:
        assert one.timer is not None
        before, one.cancel = one.cancel, one.cancel or "asked"
        try:
            await self.world.ask(one.broker, CancelTimer(*one.timer), Done)
        except TimerFired:
            assert before != "done", f"{one} fired after its cancel"
            one.cancel = "fired"
            self.world.events["cancelled too late"] += 1
        except TimerNotFound:
            assert before, f"{one} is not known"
            one.cancel = "done"  # an earlier one, of which no answer came
        except PenstockError:
            pass
        else:
            assert before != "fired", f"{one} was cancelled after it fired"
            one.cancel = "done"
            self.world.moments.tell("settled", one.broker)
            self.world.events["cancelled"] += 1

    def _is_due(self, one: Delayed) -> bool:
        return one.timer is not None and one.cancel in ("", "fired")

    def missing(self) -> list[str]:
        return [str(body[:20]) for body, one in self._sent.items() if self._is_due(one) and body not in self.world.seen]

    def check(self) -> None:
        assert not (lost := self.missing()), f"delayed messages never came: {lost[:3]}"
        for body, one in self._sent.items():
            found = self.world.stored(body)
            what = f"{body[:20]!r}: {one}"
            assert len(found) <= 1, f"{what} came {len(found)} times"
            if one.is_refused or one.cancel == "done":
                assert not found, f"{what} came"
            for seen in found:
                self._check_time(one, seen.message.stored_ms, seen.at_ms, what)
                if one.timer is not None:
                    said = seen.message.properties["TIMER"]
                    assert said == f"{one.timer.due_ms}:{one.timer.id}", f"{what} says {said}"

    def _check_time(self, one: Delayed, stored_ms: int, seen_ms: int, what: str) -> None:
        world = self.world
        if world.booted_wrong:
            return
        earliest_ms = one.not_before_ms - world.tolerance_ms
        assert min(stored_ms, seen_ms) >= earliest_ms, f"{what} is {earliest_ms - min(stored_ms, seen_ms)} ms early"
        if one.timer is None:
            return  # who knows when it arrived?
        latest_ms = world.latest_ms(one.broker, one.timer.due_ms, stored_ms)
        assert stored_ms <= latest_ms, f"{what} is {stored_ms - latest_ms} ms too late"


class Posts(Workload):
    """Delayed messages of a producer, which sends each again until it has an answer: each comes once."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._acknowledged: dict[bytes, DelayedReceipt] = {}
        self._unknown: set[bytes] = set()
        self._failed: set[bytes] = set()

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._post]

    async def _post(self) -> None:
        rng, clock = self.rng, self.world.sim.clock
        ends_at = trio.current_time() + self.world.options.load_s
        rng_of = self.world.sim.rng("posts")
        async with (
            Producer(servers=SERVERS, timeout_s=30.0, clock=clock, rng=rng_of) as producer,
            trio.open_nursery() as nursery,
        ):
            for number in itertools.count():
                body = self.body("post", number)
                self._unknown.add(body)
                nursery.start_soon(self._send, producer, body, rng.choice((0.0, 1.0, rng.uniform(0.0, 30.0))))
                await trio.sleep(rng.uniform(0.0, ends_at / 20))
                if trio.current_time() >= ends_at:
                    return

    async def _send(self, producer: Producer, body: bytes, delay_s: float) -> None:
        try:
            receipt = await producer.send("late", body, key=body[:10].decode(), delay=delay_s)
        except PenstockError as error:
            if not error.unknown:
                self._failed.add(body)
        else:
            self._acknowledged[body] = receipt
            self.world.moments.tell("stored", int(receipt.broker[-1]))

    def missing(self) -> list[str]:
        return [str(body[:20]) for body in self._acknowledged if body not in self.world.seen]

    def check(self) -> None:
        assert not (lost := self.missing()), f"delayed messages never came: {lost[:3]}"
        for body in self._unknown:
            found = self.world.stored(body)
            assert len(found) <= int(body not in self._failed), f"{body[:20]!r} came {len(found)} times"
            receipt = self._acknowledged.get(body)
            if receipt is not None:
                said = f"{receipt.due_ms}:{receipt.timer}"
                assert found[0].message.properties["TIMER"] == said, f"{body[:20]!r} has another timer than {said}"
