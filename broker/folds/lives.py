"""Fold of gateways' lives: which are over, so that nothing is stored for them any more.

A gateway names its life with all that it appends. The home of sessions ends a life when it gives away a session that
the gateway has not let go of, or takes the gateway for dead; other brokers are told of it. Whoever goes on after that,
because it was frozen or its network was, is refused, however late what it sent arrives, and has to begin another life.
A life that is over never comes back. Of very many lives the latest ``LIVES_MAX`` are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Final

KEY: Final = "lives"
TOPIC: Final = "%sys%lives"
LIVES_MAX: Final = 1000
_BEGIN: Final = "begin"
_END: Final = "end"


class Lives:
    """The lives that one broker knows of.

    Attributes:
        over: those that are over, in the order in which this broker was told of it.
    """

    def __init__(self) -> None:
        self.over: dict[str, None] = {}
        self._of: dict[str, str] = {}  # owner -> the life that it leads

    def of(self, owner: str) -> str:
        """The life that an owner leads, empty if none is known."""
        return self._of.get(owner, "")

    @property
    def owners(self) -> list[str]:
        """All who lead one."""
        return list(self._of)

    def over_after(self, heard: str) -> tuple[str, ...]:
        """The lives that are over, those behind ``heard`` if it is among them, else all."""
        if heard not in self.over:
            return tuple(self.over)
        return tuple(takewhile(lambda life: life != heard, reversed(self.over)))[::-1]

    @staticmethod
    def beginning(owner: str, life: str) -> list[Any]:
        """Body of the record that an owner leads a life; the one that it led before is over."""
        return [_BEGIN, owner, life]

    @staticmethod
    def ending(lives: Iterable[str]) -> list[Any]:
        """Body of the record that ends lives."""
        return [_END, list(lives)]

    def apply(self, body: list[Any]) -> None:
        """Takes in a record's body."""
        if body[0] == _BEGIN:
            owner, life = body[1:3]
            earlier = self._of.pop(owner, life)
            if earlier != life:
                self._end([earlier])
            self._of[owner] = life
            if len(self._of) > LIVES_MAX:
                del self._of[next(iter(self._of))]
        elif body[0] == _END:
            self._end(body[1])

    def _end(self, lives: Sequence[str]) -> None:
        self.over |= dict.fromkeys(lives)
        for owner in [owner for owner, life in self._of.items() if life in lives]:
            del self._of[owner]
        while len(self.over) > LIVES_MAX:
            del self.over[next(iter(self.over))]

    def snapshot(self) -> list[Any]:
        """The state as plain values."""
        return [list(self.over), [list(one) for one in self._of.items()]]

    def restore(self, snapshot: list[Any]) -> None:
        """Takes the state of a snapshot."""
        self.over, self._of = dict.fromkeys(snapshot[0]), {owner: life for owner, life in snapshot[1]}
