"""A transaction of messages from code without an event loop: halves that begin with a block and end with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from penstock.client.halves import Half, left_to_checks
from penstock.errors import InvalidRequest, PenstockError
from penstock.protocol.requests.transactions import COMMIT, ROLLBACK, UNKNOWN

_log = logging.getLogger(__name__)


class Transaction:
    """As ``penstock.client.transaction.Transaction``, for ``with``."""

    def __init__(self, begin: Callable[[], list[Half]], end: Callable[[list[Half], str], None]) -> None:
        """``begin`` stores the halves, ``end`` gives them an outcome, or leaves it; both raise ``PenstockError``."""
        self._begin = begin
        self._end = end
        self._halves: list[Half] | None = None
        self._outcome = COMMIT

    @property
    def ids(self) -> tuple[tuple[str, int], ...]:
        """Broker and id of each half, as ``penstock transaction list`` shows them: one for each broker that some of the
        messages go to."""
        return tuple([(half.broker, half.id) for half in self._halves or ()])

    def rollback(self) -> None:
        """Has the messages dropped as the block ends."""
        self._outcome = ROLLBACK

    def unknown(self) -> None:
        """Leaves the outcome to the check: a listener of the group is asked."""
        self._outcome = UNKNOWN

    def __enter__(self) -> Transaction:
        if self._halves is not None:
            raise InvalidRequest("a transaction is begun once")
        self._halves = []
        self._halves = self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._halves is not None
        outcome = self._outcome if kind is None else ROLLBACK
        try:
            self._end(self._halves, outcome)
        except PenstockError as refusal:
            if outcome != COMMIT:
                _log.warning("a rollback is left to the check: %s", refusal)
                return
            raise left_to_checks(refusal) from refusal.__cause__
