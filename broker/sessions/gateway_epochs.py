"""Fold of gateways' epochs, which fence gateways that stood still.

A gateway names its epoch in all its appends. The home of sessions ends an epoch when it gives away a session that the
gateway has not released, or takes the gateway for dead; other brokers learn it with ``EndGatewayEpochs``. Appends of an
ended epoch are refused, however late they arrive; the gateway has to begin another. The latest ``GATEWAY_EPOCHS_MAX``
epochs and as many owners are known.

A new process has nothing of an earlier one of its name, also if the home restarts before another owner has taken its
sessions. So the log position at which each owner's process began is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from broker.kernel.fold import fact_of, packed
from broker.store.records import NO_CHANGE, Change, Stored

TOPIC: Final = "%sys%lives"
GATEWAY_EPOCHS_MAX: Final = 1000
_BEGIN: Final = "begin"
_END: Final = "end"


class GatewayEpochs:
    """The epochs that one broker knows of.

    Attributes:
        over: those that are over, in the order in which this broker was told of it.
        began: owner -> log position at which its process has told that it begins.
    """

    KEY: Final = "lives"
    TOPICS: Final = (TOPIC,)
    FLAGS: Final = 0

    def __init__(self) -> None:
        self.over: dict[str, None] = {}
        self.began: dict[str, int] = {}
        self._of: dict[str, str] = {}  # owner -> its epoch

    def of(self, owner: str) -> str:
        """An owner's epoch, empty if none is known."""
        return self._of.get(owner, "")

    @property
    def owners(self) -> list[str]:
        """All that have one."""
        return list(self._of)

    def over_after(self, heard: str) -> tuple[str, ...]:
        """The epochs that are over, those behind ``heard`` if it is among them, else all."""
        if heard not in self.over:
            return tuple(self.over)
        return tuple(takewhile(lambda epoch: epoch != heard, reversed(self.over)))[::-1]

    @staticmethod
    def beginning(owner: str, epoch: str, fresh: bool) -> list[Any]:
        """Body of the record that an owner begins an epoch; the one that it had before is over. ``fresh``: its process
        has just begun."""
        return [_BEGIN, owner, epoch, fresh]

    @staticmethod
    def ending(epochs: Iterable[str]) -> list[Any]:
        """Body of the record that ends epochs."""
        return [_END, list(epochs)]

    def apply(self, record: Stored) -> Change:
        """Takes in a record. Older brokers have stored none that is known to be fresh."""
        body = fact_of(record)
        if body[0] == _BEGIN:
            owner, epoch = body[1:3]
            earlier = self._of.pop(owner, epoch)
            if earlier != epoch:
                self._end([earlier])
            self._of[owner] = epoch
            _forget_first(self._of)
            if len(body) > 3 and body[3]:
                self.began.pop(owner, None)
                self.began[owner] = record.position
                _forget_first(self.began)
        elif body[0] == _END:
            self._end(body[1])
        return NO_CHANGE

    def _end(self, epochs: Sequence[str]) -> None:
        self.over |= dict.fromkeys(epochs)
        for owner in [owner for owner, epoch in self._of.items() if epoch in epochs]:
            del self._of[owner]
        _forget_first(self.over)

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return [list(self.over), [list(one) for one in self._of.items()], [list(one) for one in self.began.items()]]

    def freeze(self) -> Iterator[bytes]:
        return packed(self.snapshot())

    def restore(self, snapshot: list[Any] | None) -> None:
        snapshot = snapshot or [(), ()]
        self.over, self._of = dict.fromkeys(snapshot[0]), {owner: epoch for owner, epoch in snapshot[1]}
        self.began = {owner: position for owner, position in snapshot[2]} if len(snapshot) > 2 else {}


def _forget_first(known: dict[str, Any]) -> None:
    while len(known) > GATEWAY_EPOCHS_MAX:
        del known[next(iter(known))]
