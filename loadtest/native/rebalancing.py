"""Rebalances as members see them: how long until each queue has its holder again, and nobody too many.

Many members in one process come all at once, one goes, and one comes again; in an ordinary group and in an ordered one,
where a queue goes over when its holder has let go of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from loadtest.native.orders import Meter, Order, Outcome
from loadtest.wires import Failed
from penstock import Consumer, MessageQueue

PATIENCE_S: Final = 30.0


class Members:
    """The members of one group, and when all queues were dealt. ``moves``: queues that a member got."""

    def __init__(self, order: Order, queues: int, *, ordered: bool) -> None:
        self._order = order
        self._queues = queues
        self._ordered = ordered
        self._members: list[Consumer] = []
        self._wanted = 0
        self._settled = anyio.Event()
        self.moves = 0

    async def become(self, wanted: int, change: Callable[[], None]) -> float:
        """Gives the group this number of members; returns the seconds until each has its part."""
        self._wanted, self._settled, begin = wanted, anyio.Event(), time.perf_counter()
        change()
        with anyio.move_on_after(PATIENCE_S) as patience:
            await self._settled.wait()
        if patience.cancelled_caught:
            raise Failed(f"{self._queues} queues were not dealt to {wanted} members within {PATIENCE_S:.0f} s")
        return time.perf_counter() - begin

    async def member(self, leaves: anyio.Event) -> None:
        async with Consumer(
            f"{self._order.group}-{'ordered' if self._ordered else 'ordinary'}",
            self._order.topic,
            servers=self._order.servers,
            ordered=self._ordered,
            on_assigned=self._got,
            on_lost=self._look,
        ) as consumer:
            self._members.append(consumer)
            self._look(())
            await leaves.wait()
            self._members.remove(consumer)

    def _got(self, queues: tuple[MessageQueue, ...]) -> None:
        self.moves += len(queues)
        self._look(queues)

    def _look(self, _queues: tuple[MessageQueue, ...]) -> None:
        """Whether each queue has one holder, and each member as many as any other or one more."""
        held = [one.assignment for one in self._members]
        if len(held) == self._wanted and len(set().union(*held)) == sum(map(len, held)) == self._queues:
            counts = [len(queues) for queues in held]
            if max(counts) - min(counts) <= 1:
                self._settled.set()


async def rebalance(order: Order) -> Outcome:
    """``order.tasks`` members over ``order.messages`` queues. Figures: the slowest of three rebalances. Raises
    ``Failed``."""
    meter, moves, figures = Meter(order), 0, {}
    first = meter.look(0)
    for name, ordered in (("ordinary_s", False), ("ordered_s", True)):
        members = Members(order, order.messages, ordered=ordered)
        async with anyio.create_task_group() as tasks:
            figures[name] = await _three(members, order.tasks, tasks)
            tasks.cancel_scope.cancel()
        moves += members.moves
    outcome = first.until(meter.look(moves))
    outcome.figures = figures
    return outcome


async def _three(members: Members, count: int, tasks: TaskGroup) -> float:
    """All come, one goes, one comes: the longest of the three."""
    leaves = anyio.Event()

    def come(number: int) -> None:
        for _ in range(number):
            tasks.start_soon(members.member, anyio.Event())

    def come_and_one_to_leave() -> None:
        tasks.start_soon(members.member, leaves)
        come(count - 1)

    took = [await members.become(count, come_and_one_to_leave), await members.become(count - 1, leaves.set)]
    return max(*took, await members.become(count, lambda: come(1)))
