"""What administrators do, blocking: the same as ``penstock.Admin``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from penstock.blocking.routes import Routes
from penstock.client import administration as tasks
from penstock.client.administration import Ask, DeadLetter, DeadLetters, DelayedMessage, Redriven, Task, Transaction
from penstock.client.arguments import check_seconds
from penstock.client.completeness import check_whole
from penstock.client.retry import TIMEOUT_S
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.addresses import SERVERS
from penstock.protocol.requests.transactions import COMMIT, ROLLBACK

R = TypeVar("R")


class Admin:
    """Administers a cluster. Use it with ``with``. Its methods are those of ``penstock.Admin``.

    Args:
        servers: name servers, ``"host:port,host:port"`` or a list.
        timeout_s: how long a server may take for one answer.
    """

    def __init__(self, servers: str | Sequence[str] = SERVERS, *, timeout_s: float = TIMEOUT_S) -> None:
        check_seconds("timeout_s", timeout_s)
        self._routes = Routes(servers, timeout_s)
        self._open = False

    def __enter__(self) -> Admin:
        self._open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open = False
        self._routes.close()

    def delete_topic(self, topic: str) -> dict[str, int]:
        """Deletes a topic at all brokers, with its messages, retained messages and committed offsets: how many messages
        were in it, by broker. Made again, its offsets go on where they ended. Raises ``TopicNotFound`` and
        ``InvalidTopic``."""
        return self._run(tasks.delete_topic(topic))

    def delayed(self) -> list[DelayedMessage]:
        """All delayed messages, in the order in which they are due."""
        return self._run(tasks.delayed())

    def cancel(self, broker: str, id: int, due_ms: int) -> None:
        """Takes a delayed message back. Raises ``TimerFired`` or ``TimerNotFound``."""
        self._run(tasks.cancel(broker, id, due_ms))

    def transactions(self) -> list[Transaction]:
        """All halves that wait for their outcome, the oldest first."""
        return self._run(tasks.transactions())

    def commit(self, broker: str, id: int) -> None:
        """Commits a half by hand. Raises ``OutcomeStands``, ``HalfNotFound``, or what its message is refused with."""
        self._run(tasks.end_transaction(broker, id, COMMIT))

    def rollback(self, broker: str, id: int) -> None:
        """Rolls a half back by hand: its message is gone. Raises ``OutcomeStands`` or ``HalfNotFound``."""
        self._run(tasks.end_transaction(broker, id, ROLLBACK))

    def check(self, broker: str, id: int) -> None:
        """Has producers asked about a half again. Raises ``HalfNotFound``."""
        self._run(tasks.check_transaction(broker, id))

    def dead_letters(self) -> list[DeadLetters]:
        """How many dead letters each group has at each broker."""
        return self._run(tasks.dead_letters())

    def letters_of(self, group: str, count_max: int = 100) -> list[DeadLetter]:
        """The latest dead letters of a group, at most ``count_max`` of each broker. Raises ``TopicNotFound``."""
        return self._run(tasks.letters_of(group, count_max))

    def redrive(self, group: str, to: str = "", *, again: bool = False) -> list[Redriven]:
        """Sends dead letters of a group again. As ``penstock.Admin.redrive``."""
        return self._run(tasks.redrive(group, to, again=again))

    def _run(self, task: Task[R]) -> R:
        """Asks what a task wants to know until it has its result."""
        if not self._open:
            raise InvalidRequest("this admin is not open", hint="use it inside `with Admin(...) as a:`")
        answer: object = None
        try:
            wanted = next(task)
            while True:
                try:
                    if isinstance(wanted, Ask):
                        answer = self._routes.link(wanted.address).ask(wanted.request, wanted.reply)
                    else:
                        found = self._routes.holders()
                        check_whole(found.away, "all brokers")
                        answer = found.brokers
                except PenstockError as error:
                    wanted = task.throw(error)
                else:
                    wanted = task.send(answer)
        except StopIteration as done:
            result: R = done.value
            return result
