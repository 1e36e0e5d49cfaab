"""Transactional messages of the world in ``messaging.py``, and what each is promised.

Producers begin halves and commit them, roll them back, say both at once, or say nothing and are asked. An operator
decides what is parked. One group has nobody to be asked until the load is over. Checked: a half that was acknowledged
has one outcome, the first, and everybody is told that one; a commit comes once and not before somebody asked for it, a
rollback never; nothing is forgotten; a check counts only where somebody was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import trio

from penstock import Message
from penstock.errors import HalfNotFound, OutcomeStands, PenstockError, StorageFull
from penstock.protocol.message import encode_message
from penstock.protocol.requests.request import Done
from penstock.protocol.requests.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    BeginHalves,
    CheckHalf,
    EndHalves,
    HalfEnded,
    HalfOutcome,
    HalfRow,
    HalvesBegun,
    HalvesEnded,
    HalvesPage,
    HalvesToCheck,
    ListHalves,
    WatchHalves,
)
from tests.simulation.messaging import Messaging, Workload

SHOP: Final = "shop"
ALONE: Final = "alone"
"""Nobody of this group is there to be asked before the load is over."""
NEVER: Final = "never"


@dataclass
class Half:
    """A half. ``wanted``: what its producer makes of it, or ``NEVER`` says. ``id``: 0 while it is not known. ``asked``:
    outcomes that somebody asked for, with the right time. ``stands``: what the broker said stands."""

    broker: int
    group: str
    wanted: str
    id: int = 0
    is_refused: bool = False
    asked: dict[str, int] = field(default_factory=dict)
    stands: set[str] = field(default_factory=set)

    @property
    def is_acknowledged(self) -> bool:
        """Whether the broker has said that it is stored."""
        return self.id > 0


class Halves(Workload):
    """Halves of two producer groups."""

    def __init__(self, world: Messaging) -> None:
        super().__init__(world)
        self._halves: dict[bytes, Half] = {}
        self._by_key: dict[str, bytes] = {}

    def tasks(self) -> Sequence[Callable[[], Any]]:
        return [self._sell]

    def lasting(self) -> Sequence[Callable[[], Any]]:
        watching = [partial(self._watch, number, group) for number in range(2) for group in (SHOP, ALONE)]
        return [*watching, self._operate]

    # -- producers

    async def _sell(self) -> None:
        rng, world = self.rng, self.world
        ends_at = trio.current_time() + world.options.load_s
        async with trio.open_nursery() as nursery:
            while trio.current_time() < ends_at:
                broker, group = rng.randrange(2), rng.choice((SHOP, SHOP, ALONE))
                bodies = [self._new(broker, group) for _ in range(rng.randint(1, 3))]
                if await self._begin(broker, group, bodies):
                    for body in bodies:
                        if self._halves[body].is_acknowledged:
                            nursery.start_soon(self._decide, self._halves[body])
                await trio.sleep(rng.uniform(0.0, ends_at / 8))

    def _new(self, broker: int, group: str) -> bytes:
        key = f"half-{len(self._halves)}"
        body = self.body(key)
        self._halves[body] = Half(broker, group, self.rng.choice((COMMIT, COMMIT, ROLLBACK, NEVER)))
        self._by_key[key] = body
        return body

    async def _begin(self, broker: int, group: str, bodies: list[bytes]) -> bool:
        records = [encode_message(Message("sold", body, key=body.split(b".")[0].decode())) for body in bodies]
        try:
            begun = await self.world.ask(broker, BeginHalves(group, len(bodies), b"".join(records)), HalvesBegun)
        except PenstockError as error:
            for body in bodies:
                self._halves[body].is_refused = not error.unknown
            return False
        assert {one.code for one in begun.refused} <= {StorageFull.code}, begun.refused
        for body, id in zip(bodies, begun.ids, strict=True):
            self._halves[body].id = id
            self._halves[body].is_refused = not id
        self.world.moments.tell("stored", broker)
        return True

    async def _decide(self, half: Half) -> None:
        """Some producers say both outcomes at once, some none."""
        rng = self.rng
        if half.wanted == NEVER or rng.random() < 0.4:
            return
        await trio.sleep(rng.choice((0.0, 0.0, 1.0, 5.0)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end, half, half.id, half.wanted)
            if rng.random() < 0.5:
                nursery.start_soon(self._end, half, half.id, self._opinion(half))

    async def _end(self, half: Half, id: int, outcome: str) -> None:
        half.asked.setdefault(outcome, self.world.right_ms())
        try:
            answer = await self.world.ask(half.broker, EndHalves(half.group, (HalfOutcome(id, outcome),)), HalvesEnded)
        except PenstockError:
            return
        self._heard(half, answer.ended[0])

    def _heard(self, half: Half, ended: HalfEnded) -> None:
        assert ended.code in (0, OutcomeStands.code, StorageFull.code), f"{half}: {ended}"
        self.world.events["told which outcome stands"] += ended.code == OutcomeStands.code
        if ended.code == StorageFull.code:
            return
        if ended.outcome != UNKNOWN:
            half.stands.add(ended.outcome)
            self.world.moments.tell("settled", half.broker)
        assert len(half.stands) <= 1, f"{half} has two outcomes"

    async def _watch(self, broker: int, group: str) -> None:
        """A producer that is asked for outcomes."""
        while group == ALONE and self.world.is_loaded:  # noqa: ASYNC110 (nothing sets an event)
            await trio.sleep(5.0)
        while True:
            try:
                to_check = await self.world.ask(broker, WatchHalves(group, 10.0), HalvesToCheck, None)
            except PenstockError:
                await trio.sleep(1.0)
                continue
            for row in to_check.halves:
                half = self._halves[self._by_key[row.key]]
                assert row.group == group == half.group, row
                undecided = half.wanted == NEVER or self.rng.random() < 0.3
                await self._end(half, row.id, UNKNOWN if undecided else self._opinion(half))

    def _opinion(self, half: Half) -> str:
        """What one of the producers takes for the outcome; they do not always agree."""
        return half.wanted if self.rng.random() < 0.7 else {COMMIT: ROLLBACK, ROLLBACK: COMMIT}[half.wanted]

    # -- an operator

    async def _operate(self) -> None:
        while True:
            await trio.sleep(self.rng.uniform(4.0, 12.0))
            for broker in range(2):
                try:
                    page = await self.world.ask(broker, ListHalves(), HalvesPage)
                except PenstockError:
                    continue
                for row in page.halves:
                    if row.group in (SHOP, ALONE):
                        await self._look_at(broker, row)

    async def _look_at(self, broker: int, row: HalfRow) -> None:
        assert row.key, f"{row} is lost"
        half = self._halves[self._by_key[row.key]]
        assert row.checks == 0 or half.group == SHOP or not self.world.is_loaded, f"{row} counts what nobody was asked"
        if not row.parked:
            return
        self.world.events["parked without a check" if "no producer" in row.parked else "parked"] += 1
        if half.group == SHOP and "no producer" not in row.parked:
            assert row.checks > 0, f"{row} is parked, and nobody was asked"
        if half.group == ALONE and self.world.is_loaded:
            return
        if self.rng.random() < 0.3:
            try:
                await self.world.ask(broker, CheckHalf(row.id), Done)
            except HalfNotFound:
                pass  # somebody has ended it meanwhile
            except PenstockError:
                pass
        else:
            await self._end(half, row.id, self.rng.choice((COMMIT, ROLLBACK)))

    # -- what was promised

    def missing(self) -> list[str]:
        open_ = [one for one in self._halves.values() if one.is_acknowledged and not one.stands]
        lost = [body[:20] for body, one in self._halves.items() if COMMIT in one.stands and body not in self.world.seen]
        return [f"no outcome: {one}" for one in open_] + [f"committed, never came: {body!r}" for body in lost]

    async def settle(self) -> None:
        for half in self._halves.values():
            if half.is_acknowledged:
                await self._end(half, half.id, UNKNOWN)

    def check(self) -> None:
        assert not (lost := self.missing()), lost[:3]
        for body, half in self._halves.items():
            found = self.world.stored(body)
            what = f"{body[:20]!r}: {half}"
            assert len(found) <= 1, f"{what} came {len(found)} times"
            for outcome in half.stands:
                assert outcome in half.asked, f"{what}: nobody asked for that"
            if half.is_refused or ROLLBACK in half.stands:
                assert not found, f"{what} came"
            for seen in found:
                assert COMMIT in half.asked, f"{what} came, and nobody committed it"
                assert min(seen.at_ms, seen.message.stored_ms) >= half.asked[COMMIT] - self.world.tolerance_ms or (
                    self.world.booted_wrong
                ), f"{what} came before its commit"
                assert half.id in (0, int(seen.message.properties["HALF"])), what
