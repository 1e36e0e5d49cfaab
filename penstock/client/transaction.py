"""A transaction of messages, on asyncio and on trio: halves that begin with a block and end with it.

How halves begin and end is decided in penstock/client/halves.py; this module waits.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

import anyio

from penstock.client.halves import Beginning, Block, Half, begun, check_ended, ends_of
from penstock.client.outbox import Outbox
from penstock.client.sending import Outgoing
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.requests.transactions import ROLLBACK, HalvesEnded

ROLLBACK_S: Final = 2.0
"""How long a block that ends with an error waits for its rollback."""


class Transactions:
    """The halves of a producer's transactions that are under way.

    Args:
        group: the producer group.
        outbox: what sends and asks.
    """

    def __init__(self, group: str, outbox: Outbox) -> None:
        self._group = group
        self._outbox = outbox
        self._open: set[tuple[str, int]] = set()

    def is_open(self, broker: str, id: int) -> bool:
        """Whether the block of a half has not ended yet."""
        return (broker, id) in self._open

    async def begin(self, outgoing: list[Outgoing], limit_s: float) -> list[Half]:
        """Stores messages as halves, all or none of them."""
        self._outbox.opened()
        halves, error = begun(await self._outbox.send_all(outgoing, limit_s, way=Beginning(self._group)))
        if error is not None:
            if halves:
                with suppress(PenstockError):  # else a listener is asked
                    await self.end(limit_s, halves, ROLLBACK)
            raise error
        self._open.update([(half.broker, half.id) for half in halves])
        return halves

    async def end(self, limit_s: float, halves: Sequence[Half], outcome: str) -> None:
        """The block of these halves has ended: gives them their outcome, and raises the first error."""
        self._open.difference_update([(half.broker, half.id) for half in halves])
        errors: list[PenstockError] = []
        for at, request in ends_of(self._group, halves, outcome):
            try:
                check_ended(await self._outbox.ask_broker(at.broker, at.address, request, HalvesEnded, limit_s))
            except PenstockError as error:
                errors.append(error)
        if errors:
            raise errors[0]


class Transaction(Block):
    """Messages that are stored when the block begins and delivered when it ends without an error.

    If the block ends with an error, they are rolled back. After ``unknown()``, or if the broker does not get the
    outcome, it asks the listeners of the group later.
    """

    def __init__(
        self, begin: Callable[[], Awaitable[list[Half]]], end: Callable[[list[Half], str], Awaitable[None]]
    ) -> None:
        """``begin`` stores the halves, ``end`` gives them an outcome, or leaves it; both raise ``PenstockError``."""
        super().__init__()
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> Transaction:
        self._enter()
        self._halves = await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._halves is None:
            raise InvalidRequest("this transaction has not begun", hint="use it with `async with`")
        outcome = self._outcome if kind is None else ROLLBACK
        with anyio.move_on_after(math.inf if kind is None else ROLLBACK_S, shield=kind is not None):
            try:
                await self._end(self._halves, outcome)
            except PenstockError as refusal:
                self._refused(outcome, refusal)
