"""Limits filter changes to a number per round, shared fairly by all connections that subscribe or unsubscribe.

A filter costs as much as many messages. Without turns one client with a thousand filters in each of many packets, or
thousands of clients after a network fault, would delay all others. A waiting connection is not read, its received
packets stay bytes (``gateway/mqtt/reader.py``), and continue in their order. A packet with more filters than a round
has room for continues behind the others that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gateway.fairness import FairQueue
from gateway.net.rounds import Rounds, Stage

PER_ROUND: Final = 256
"""Filters; all together take 3 to 4 ms."""
PER_TURN: Final = 64
"""Filters of one connection, then it is the next one's turn."""
PACKET_COST: Final = 3
"""The cost of a packet beside its filters, in filters."""


class Task:
    """A SUBSCRIBE or UNSUBSCRIBE that is carried out."""

    __slots__ = ("left",)

    def __init__(self, filters: int) -> None:
        """``left``: the number of its filters that are not done."""
        self.left = filters

    def go_on(self, most: int) -> None:
        """Carries out at most this many further filters; with the last one it is done."""
        raise NotImplementedError


class Waiter(Protocol):
    """A connection whose packet waits (``gateway.connections.device.Device``)."""

    is_over: bool

    def wait(self) -> None:
        """Pauses its work until ``go_on``."""
        ...

    def go_on(self, *, has_turn: bool = False) -> None:
        """It has its turn for the packet that has waited, or that packet is done."""
        ...

    def drop(self) -> None:
        """Closes without a word."""
        ...


class Turns(Stage):
    """The turns of one gateway's SUBSCRIBEs and UNSUBSCRIBEs."""

    def __init__(self, rounds: Rounds, failed: Callable[[Waiter], None]) -> None:
        """``failed`` closes a connection for an unforeseen error, which is being handled."""
        self._rounds = rounds
        self._failed = failed
        self._round = rounds.number
        self._queue: FairQueue[Waiter, Task | None] = FairQueue(PER_TURN, PER_ROUND)  # ``None``: it has not begun

    @property
    def waiting(self) -> int:
        """The number of connections that wait for their turn."""
        return len(self._queue)

    def has_room(self, device: Waiter) -> bool:
        """Whether its next packet may begin. If not it waits."""
        self._come_to_round()
        if not self._queue and self._queue.room > 0:
            return True
        self._wait(device, None)
        return False

    def queue(self, device: Waiter) -> None:
        """A connection that waits already, for something else, waits for its turn from now on."""
        self._queue.add(device, None)
        self._rounds.again()

    def begin(self, device: Waiter, task: Task) -> None:
        """Carries out the work of its turn, as far as this round's room goes; it waits if that is not to its
        end."""
        if not self._carry_out(device, task):
            self._wait(device, task)

    def _wait(self, device: Waiter, task: Task | None) -> None:
        self._queue.add(device, task)
        device.wait()
        self._rounds.again()

    def _come_to_round(self) -> None:
        if self._round != self._rounds.number:
            self._round = self._rounds.number
            self._queue.begin(PER_ROUND)

    def _carry_out(self, device: Waiter, task: Task) -> bool:
        """Whether that was to its end."""
        share = min(task.left, max(self._queue.room, 0))
        self._queue.charge(device, share + PACKET_COST)
        task.go_on(share)
        return not task.left

    def flush(self) -> None:
        """Goes on with those whose turn it is."""
        if not self._queue:
            return  # as in most rounds
        self._come_to_round()
        while (waiting := self._queue.take()) is not None:
            device, task = waiting
            if device.is_over:
                continue
            try:
                if task is not None and not self._carry_out(device, task):
                    self._queue.add(device, task)
                    continue
            except Exception:
                self._failed(device)
                continue
            device.go_on(has_turn=task is None)
        if self._queue:
            self._rounds.again()
