"""Requests that wait for proof that this node still leads.

One round of signs of life answers all requests that came before it began. Requests that come during a round share the
next one. Pure.
"""

from __future__ import annotations

from collections.abc import Callable


class Confirmations:
    """The rounds of a node, one at a time."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._under_way: list[Callable[[], None]] = []
        self._epoch = 0
        self._number = 0

    def wait(self, on_confirmed: Callable[[], None]) -> None:
        """Calls back when a round is confirmed that begins from now on; never where this node ceases to lead first."""
        self._waiting.append(on_confirmed)

    def is_due(self) -> bool:
        """Whether a round is to begin."""
        return bool(self._waiting) and not self._under_way

    def begun(self, epoch: int, number: int) -> None:
        """A round has begun, in the leadership of this epoch."""
        self._under_way, self._waiting = self._waiting, []
        self._epoch, self._number = epoch, number

    def answer(self, epoch: int, confirmed: int) -> None:
        """The node leads in this epoch, or does not (0), and its rounds up to ``confirmed`` are answered."""
        if not epoch:
            self._waiting.clear()
            self._under_way.clear()
        elif self._under_way and epoch != self._epoch:  # it has led before, and leads again
            self._under_way.clear()
        elif self._under_way and confirmed >= self._number:
            done, self._under_way = self._under_way, []
            for on_confirmed in done:
                on_confirmed()
