"""Transactions of several messages by the producers' own client, in the world of ``messaging.py``.

Two producers of a group have a listener; one of them sells. Checked: all messages of a sale that was to be committed
come, each once; of any other none ever does, whatever became of the block that made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from penstock import Message, Producer
from penstock.client.halves import HalfMessage
from penstock.errors import PenstockError
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.transactions import COMMIT, ROLLBACK, UNKNOWN, CheckHalf, HalvesPage, ListHalves
from tests.simulation.messaging import SERVERS, Messaging, Workload

GROUP: Final = "till"


@dataclass
class Sale:
    """A transaction. ``wanted``: its outcome. ``state``: ``"begins"``, ``"open"``, ``"over"``, or ``"failed"`` as it
    began: then it is not carried out."""

    bodies: list[bytes]
    wanted: str
    state: str = "begins"

    @property
    def comes(self) -> bool:
        """Whether its messages are to be delivered."""
        return self.state == "over" and self.wanted == COMMIT


class Tills(Workload):
    """A group of producers whose transactions have several messages."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._sales: list[Sale] = []
        self._of: dict[bytes, Sale] = {}

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._sell]

    def lasting(self) -> Sequence[Callable[[], Any]]:
        return [self._listen, self._operate]

    def _producer(self, name: str) -> Producer:
        clock, rng = self.world.sim.clock, self.world.sim.rng(name)
        return Producer(servers=SERVERS, timeout_s=10.0, group=GROUP, check=self._check, clock=clock, rng=rng)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(PenstockError):
                async with self._producer("other till"):
                    await trio.sleep_forever()

    async def _sell(self) -> None:
        rng, ends_at = self.rng, trio.current_time() + self.world.options.load_s
        async with self._producer("till") as producer:
            while trio.current_time() < ends_at:
                number = len(self._sales)
                bodies = [self.body("sale", number, at) for at in range(rng.choice((1, 3, 8)))]
                sale = Sale(bodies, rng.choice((COMMIT, COMMIT, ROLLBACK)))
                self._sales.append(sale)
                self._of.update(dict.fromkeys(bodies, sale))
                messages = [Message("sold", body, key=f"till {number} {at % 3}") for at, body in enumerate(bodies)]
                await self._carry_out(producer, sale, messages)
                await trio.sleep(rng.uniform(0.0, ends_at / 10))

    async def _carry_out(self, producer: Producer, sale: Sale, messages: list[Message]) -> None:
        try:
            async with producer.transaction(messages) as block:
                sale.state = "open"
                for broker, _ in block.ids:
                    self.world.moments.tell("stored", int(broker[-1]))
                await trio.sleep(self.rng.choice((0.0, 0.0, 3.0)))
                sale.state = "over"
                if self.rng.random() < 0.3:
                    block.unknown()
                elif sale.wanted == ROLLBACK:
                    block.rollback()
        except PenstockError as error:
            if sale.state == "begins":
                sale.state = "failed"
            self.world.events["a block that failed"] += 1
            self.world.sim.say(f"{sale.state}: {error!r}")

    async def _check(self, half: HalfMessage) -> str:
        sale = self._of[half.body]
        self.world.events["a listener was asked"] += 1
        if sale.state in ("begins", "open"):
            return UNKNOWN
        return COMMIT if sale.comes else ROLLBACK

    async def _operate(self) -> None:
        """What is parked is asked for once more."""
        while True:
            await trio.sleep(10.0)
            for broker in range(2):
                with contextlib.suppress(PenstockError):
                    page = await self.world.ask(broker, ListHalves(), HalvesPage)
                    for row in page.halves:
                        if row.parked and row.group == GROUP:
                            await self.world.ask(broker, CheckHalf(row.id), Done)

    def missing(self) -> list[str]:
        due = [body for sale in self._sales if sale.comes for body in sale.bodies]
        return [f"{body[:20]!r} of a sale" for body in due if body not in self.world.seen]

    def check(self) -> None:
        assert not (lost := self.missing()), f"committed, never came: {lost[:3]}"
        for sale in self._sales:
            counts = [len(self.world.stored(body)) for body in sale.bodies]
            assert counts == [int(sale.comes)] * len(counts), f"{sale.bodies[0][:20]!r}, {sale.state}: {counts}"
