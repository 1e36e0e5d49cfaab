"""A transaction of messages from code without an event loop: halves that begin with a block and end with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, TypeVar

from penstock.client.halves import Block, Half, begun, check_ended, ends_of
from penstock.client.sending import Outgoing
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.requests.request import Reply, Request
from penstock.protocol.requests.transactions import ROLLBACK, HalvesEnded

_R = TypeVar("_R", bound=Reply)


class AskBroker(Protocol):
    """Asks a broker, by its name and where it was a moment ago, for a reply of a type, until the deadline."""

    def __call__(self, name: str, address: str, request: Request, kind: type[_R], timeout_s: float | None, /) -> _R: ...


class Transactions:
    """The halves of a producer's transactions that are under way, as ``penstock.client.transaction.Transactions``."""

    def __init__(self, group: str, ask_broker: AskBroker) -> None:
        self._group = group
        self._ask_broker = ask_broker
        self._open: set[tuple[str, int]] = set()

    def is_open(self, broker: str, id: int) -> bool:
        """Whether the block of a half has not ended yet."""
        return (broker, id) in self._open

    def begin(self, outgoing: Sequence[Outgoing], limit_s: float) -> list[Half]:
        """The halves of messages that were sent as such: all, or none, and an error is raised."""
        halves, error = begun(outgoing)
        if error is not None:
            if halves:
                with suppress(PenstockError):  # else a listener is asked
                    self.end(limit_s, halves, ROLLBACK)
            raise error
        self._open.update([(half.broker, half.id) for half in halves])
        return halves

    def end(self, limit_s: float, halves: Sequence[Half], outcome: str) -> None:
        """The block of these halves has ended: gives them their outcome, and raises the first error."""
        self._open.difference_update([(half.broker, half.id) for half in halves])
        errors: list[PenstockError] = []
        for at, request in ends_of(self._group, halves, outcome):
            try:
                check_ended(self._ask_broker(at.broker, at.address, request, HalvesEnded, limit_s))
            except PenstockError as error:
                errors.append(error)
        if errors:
            raise errors[0]


class Transaction(Block):
    """A transaction as ``penstock.client.transaction.Transaction``, for ``with``."""

    def __init__(self, begin: Callable[[], list[Half]], end: Callable[[list[Half], str], None]) -> None:
        """``begin`` stores the halves, ``end`` gives them an outcome, or leaves it; both raise ``PenstockError``."""
        super().__init__()
        self._begin = begin
        self._end = end

    def __enter__(self) -> Transaction:
        self._enter()
        self._halves = self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._halves is None:
            raise InvalidRequest("this transaction has not begun", hint="use it with `with`")
        outcome = self._outcome if kind is None else ROLLBACK
        try:
            self._end(self._halves, outcome)
        except PenstockError as refusal:
            self._refused(outcome, refusal)
