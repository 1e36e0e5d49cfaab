"""What administrators do, on asyncio and on trio: delayed messages, transactions, dead letters.

What is asked is decided in penstock/client/administration.py; this module waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from penstock.client import administration as tasks
from penstock.client.administration import Ask, DeadLetter, DeadLetters, DelayedMessage, Redriven, Task, Transaction
from penstock.client.arguments import check_seconds
from penstock.client.completeness import check_whole
from penstock.client.discovery import Discovery
from penstock.client.retry import TIMEOUT_S
from penstock.client.task_scope import TaskScope
from penstock.client.wire_link import WireLinks, ask
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.link import Links
from penstock.protocol.requests.transactions import COMMIT, ROLLBACK
from penstock.world import Clock, RealClock, Rng, new_rng

R = TypeVar("R")


class Admin:
    """Administers a cluster. Use it with ``async with``. All brokers are asked: one that is away is ``BrokerAway``.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: how long a broker may take for one answer.
        links: ways to servers other than TCP, for programs that embed them.
    """

    def __init__(
        self,
        servers: str | Sequence[str] = SERVERS,
        *,
        timeout_s: float = TIMEOUT_S,
        links: Links | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self._servers = servers
        self._timeout_s = timeout_s
        self._links = links
        self._clock = clock or RealClock()
        self._rng = rng or new_rng()
        self._tasks: TaskScope | None = None
        self._discovery: Discovery | None = None

    async def __aenter__(self) -> Admin:
        self._tasks = TaskScope()
        await self._tasks.open()
        links = self._links or WireLinks(self._tasks, clock=self._clock, rng=self._rng)
        self._discovery = Discovery(self._servers, links, clock=self._clock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        tasks, self._tasks, self._discovery = self._tasks, None, None
        await tasks.close()

    async def delete_topic(self, topic: str) -> dict[str, int]:
        """Deletes a topic at all brokers, with its messages, retained messages and committed offsets: how many messages
        were in it, by broker. Made again, its offsets go on where they ended. Raises ``TopicNotFound`` and
        ``InvalidTopic``."""
        return await self._run(tasks.delete_topic(topic))

    async def delayed(self) -> list[DelayedMessage]:
        """All delayed messages, in the order in which they are due."""
        return await self._run(tasks.delayed())

    async def cancel(self, broker: str, id: int, due_ms: int) -> None:
        """Takes a delayed message back.

        Raises:
            TimerFired: it was delivered already.
            TimerNotFound: there is none; it may have been cancelled before.
        """
        await self._run(tasks.cancel(broker, id, due_ms))

    async def transactions(self) -> list[Transaction]:
        """All halves that wait for their outcome, the oldest first."""
        return await self._run(tasks.transactions())

    async def commit(self, broker: str, id: int) -> None:
        """Commits a half by hand. Raises ``OutcomeStands``, ``HalfNotFound``, or what its message is refused with."""
        await self._run(tasks.end_transaction(broker, id, COMMIT))

    async def rollback(self, broker: str, id: int) -> None:
        """Rolls a half back by hand: its message is gone. Raises ``OutcomeStands`` or ``HalfNotFound``."""
        await self._run(tasks.end_transaction(broker, id, ROLLBACK))

    async def check(self, broker: str, id: int) -> None:
        """Has producers asked about a half again. Raises ``HalfNotFound``."""
        await self._run(tasks.check_transaction(broker, id))

    async def dead_letters(self) -> list[DeadLetters]:
        """How many dead letters each group has at each broker."""
        return await self._run(tasks.dead_letters())

    async def letters_of(self, group: str, count_max: int = 100) -> list[DeadLetter]:
        """The latest dead letters of a group, at most ``count_max`` of each broker. Raises ``TopicNotFound``."""
        return await self._run(tasks.letters_of(group, count_max))

    async def redrive(self, group: str, to: str = "", *, again: bool = False) -> list[Redriven]:
        """Sends dead letters of a group again, each to the topic that it came from, or all to one topic. Each is sent
        at least once; those that were sent before are not, but with ``again``. One result for each: at a broker that
        refuses one the rest waits for the next call. Raises ``TopicNotFound``."""
        return await self._run(tasks.redrive(group, to, again=again))

    async def _run(self, task: Task[R]) -> R:
        """Asks what a task wants to know until it has its result."""
        discovery = self._discovery
        if discovery is None:
            raise InvalidRequest("this admin is not open", hint="use it inside `async with Admin(...) as a:`")
        answer: object = None
        try:
            wanted = next(task)
            while True:
                try:
                    if isinstance(wanted, Ask):
                        link = discovery.link(wanted.address)
                        answer = await ask(link, wanted.request, wanted.reply, self._timeout_s)
                    else:
                        found = await discovery.holders("")
                        check_whole(found.away, "all brokers")
                        answer = found.brokers
                except PenstockError as error:
                    wanted = task.throw(error)
                else:
                    wanted = task.send(answer)
        except StopIteration as done:
            result: R = done.value
            return result
