"""Who subscribes or unsubscribes has a turn: a number of filters in a round, and the others wait for the next.

A filter costs as much as many messages. Without turns one client with a thousand filters in each of many packets, or
thousands of clients with one each after a fault of the network, kept everybody waiting until all of them were seen to.
Whoever waits is not read meanwhile (``gateway.devices.device.Device.wait``), and goes on in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from gateway.shards.rounds import Rounds, Stage

PER_ROUND: Final = 256
"""Filters; all together take 3 to 4 ms."""
PACKET_COST: Final = 3
"""What a packet takes beside its filters, in filters."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """A SUBSCRIBE or UNSUBSCRIBE that is carried out."""

    __slots__ = ("left",)

    def __init__(self, filters: int) -> None:
        """``left``: so many of its filters have not been looked at."""
        self.left = filters

    def go_on(self, most: int) -> None:
        """Carries out so many more filters at most; with the last one it is done."""
        raise NotImplementedError


class Waiter(Protocol):
    """A connection whose packet waits (``gateway.devices.device.Device``)."""

    is_over: bool

    def wait(self) -> None:
        """Nothing more of it is carried out until ``go_on``."""
        ...

    def go_on(self) -> None:
        """Its packet is done."""
        ...

    def drop(self) -> None:
        """Closes without a word."""
        ...


class _Waiting(NamedTuple):
    device: Waiter
    task: Task


class Turns(Stage):
    """Those of one gateway."""

    def __init__(self, rounds: Rounds, failed: Callable[[Waiter], None]) -> None:
        """``failed`` closes a connection for an error that nobody has foreseen, which is being handled."""
        self._rounds = rounds
        self._failed = failed
        self._round = rounds.number
        self._room = PER_ROUND
        self._waiting: deque[_Waiting] = deque()

    @property
    def waiting(self) -> int:
        """How many connections wait for their turn."""
        return len(self._waiting)

    def begin(self, device: Waiter, task: Task) -> None:
        """Carries the task out if there is room for it, or as soon as there is."""
        if self._waiting or not self._carry_out(task):
            self._waiting.append(_Waiting(device, task))
            device.wait()
            self._rounds.again()

    def _carry_out(self, task: Task) -> bool:
        """Goes on with it as far as this round's room goes; whether that was to its end."""
        if self._round != self._rounds.number:
            self._round, self._room = self._rounds.number, PER_ROUND
        if self._room > 0:
            share = min(task.left, self._room)
            self._room -= share + PACKET_COST
            task.go_on(share)
        return not task.left

    def flush(self) -> None:
        """Goes on with those that have waited longest."""
        while self._waiting:
            device, task = self._waiting[0]
            try:
                if not device.is_over and not self._carry_out(task):
                    self._rounds.again()
                    return
            except Exception:
                self._failed(device)
            self._waiting.popleft()
            if not device.is_over:
                device.go_on()
