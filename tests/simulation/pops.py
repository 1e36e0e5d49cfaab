"""Messages of the world in ``messaging.py`` that a group pops, and what it is promised of them.

Takers are killed, cut off and asked to leave between pop and acknowledgement, and the brokers with them. Checked: each
message that was acknowledged to its sender is acknowledged by a taker, or is a dead letter; one whose acknowledgement
was answered is not given out again; and what the group's filter leaves out never comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from penstock import PopConsumer, Producer
from penstock.errors import Fenced, PenstockError
from penstock.protocol.received import ReceivedMessage
from tests.simulation.messaging import SERVERS, Messaging, Workload, place_of

ATTEMPTS_MAX: Final = 4
GROUP: Final = "poppers"
INVISIBLE_S: Final = 4.0
FILTER: Final = "wanted = 'yes'"


@dataclass
class Parcel:
    """A message to pop. ``fails``: how often. ``is_done``: its acknowledgement, or what returned it, was durable."""

    fails: int
    is_wanted: bool
    is_acknowledged: bool = False
    is_done: bool = False


class Pops(Workload):
    """A group that pops, whose takers come and go."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._parcels: dict[bytes, Parcel] = {}
        self._done: set[tuple[str, str, int, int]] = set()  # places that were settled durably, as a taker was told
        self._again: list[str] = []
        self._letters: set[bytes] = set()
        self._tried: dict[bytes, int] = {}

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._produce]

    def lasting(self) -> Sequence[Callable[[], Any]]:
        takers = [partial(self._take, number) for number in range(2)]
        return [*takers, *(partial(self.world.read_letters, number, GROUP, self._take_letter) for number in range(2))]

    async def _produce(self) -> None:
        rng, clock = self.rng, self.world.sim.clock
        ends_at = trio.current_time() + self.world.options.load_s
        async with Producer(servers=SERVERS, timeout_s=30.0, clock=clock, rng=self.world.sim.rng("pop")) as producer:
            while trio.current_time() < ends_at:
                body = self.body("parcel", len(self._parcels))
                one = self._parcels[body] = Parcel(rng.choice((0, 0, 0, 1, 99)), rng.random() < 0.8)
                with contextlib.suppress(PenstockError):
                    properties = {"wanted": "yes" if one.is_wanted else "no"}
                    await producer.send("work", body, key=body[:12], properties=properties)
                    one.is_acknowledged = True
                await trio.sleep(rng.uniform(0.0, ends_at / 30))

    async def _take(self, number: int) -> None:
        clock, rng = self.world.sim.clock, self.world.sim.rng(f"taker {number}")
        while True:
            with contextlib.suppress(PenstockError), trio.move_on_after(self.rng.uniform(2.0, 30.0)):
                async with PopConsumer(
                    GROUP,
                    "work",
                    servers=SERVERS,
                    start="earliest",
                    filter=FILTER,
                    invisible_s=INVISIBLE_S,
                    attempts_max=ATTEMPTS_MAX,
                    retry_delays_s=[0.0, 1.0],
                    batch_max=5,
                    clock=clock,
                    rng=rng,
                ) as consumer:
                    async for batch in consumer:
                        await self._work(consumer, batch)
            await trio.sleep(self.rng.choice((0.0, 0.5, INVISIBLE_S)))

    async def _work(self, consumer: PopConsumer, batch: Sequence[ReceivedMessage]) -> None:
        """Raises ``PenstockError`` where the messages were neither acknowledged nor returned for certain."""
        done: list[ReceivedMessage] = []
        for message in batch:
            parcel = self._parcels.get(message.body)
            if parcel is None:
                done.append(message)  # another workload's
                continue
            self.world.note(message)
            assert parcel.is_wanted, f"{message.body[:12]!r} is not wanted"
            tried = self._tried[message.body] = self._tried.get(message.body, 0) + 1
            if tried > parcel.fails:
                done.append(message)
                continue
            with contextlib.suppress(Fenced):
                await consumer.nack(message, reason="failed")
                self._done.add(place_of(message))
                self.world.moments.tell("settled", int(message.queue.broker[-1]))
                self.world.events["popped and returned"] += 1
        await trio.sleep(self.rng.choice((0.0, 0.0, 0.5, 2 * INVISIBLE_S)))
        await consumer.ack(done)
        for message in done:
            self._done.add(place_of(message))
            if message.body in self._parcels:
                self._parcels[message.body].is_done = True
                self.world.events["popped and acknowledged"] += 1
                self.world.moments.tell("settled", int(message.queue.broker[-1]))

    def given(self, broker: str, queue: str, first: int, end: int) -> None:
        """A broker leases messages: none of them was settled before."""
        topic, _, number = queue.rpartition(":")
        places = [(broker, topic, int(number), offset) for offset in range(first, end)]
        self._again += [f"{place} is given out after it was settled" for place in places if place in self._done]

    def _take_letter(self, letter: ReceivedMessage) -> None:
        self._letters.add(letter.body)
        self.world.events["popped to death"] += 1

    def missing(self) -> list[str]:
        lost = []
        for body, one in self._parcels.items():
            is_there = one.is_done or body in self._letters
            if one.is_acknowledged and one.is_wanted and not is_there:
                lost.append(f"{body[:12]!r}: {one}")
        return lost

    def check(self) -> None:
        assert not self._again, self._again[:3]
        assert not (lost := self.missing()), f"popped and gone: {lost[:3]}"
        for body, one in self._parcels.items():
            assert one.is_wanted or body not in self.world.seen, f"{body[:12]!r} was left out and came"
