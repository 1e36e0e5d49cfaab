"""Waits in trio's stead while trio has nothing to do: a turn of its loop costs more than most rounds.

A shard waits for its poller between any two rounds. By ``trio.lowlevel.wait_readable`` that is a turn of trio's loop,
more work than storing a message. While no task can run and no deadline is due, the shard waits by itself, with trio's
own descriptor among those that it waits for (``gateway/net/poller.py``). Anything that concerns trio (a socket, a
thread's result, a signal, a deadline, a task that a round has woken) ends that wait.

Trio reports to an instrument which tasks can run. Other facts of its loop are private: they are read here and nowhere
else, and never changed. With a trio that lacks them, another clock, or as a guest, there is no such wait. Decision 11.
"""

from __future__ import annotations

from typing import Any, Final

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT, SystemClock

from penstock.clock import RealClock

ROUNDS_MAX: Final = 1024
"""Number of rounds after which trio has its turn anyway."""
WAIT_S_MAX: Final = 60.0


class TrioPoll:
    """Instrument of the trio loop that it was made in, which knows what that has to do. ``descriptor``: what that loop
    itself waits for."""

    def __init__(self) -> None:
        """Raises ``AttributeError`` or ``TypeError`` where this trio is not known well enough."""
        runner: Any = GLOBAL_RUN_CONTEXT.runner
        if runner.is_guest or type(runner.clock) is not SystemClock:
            raise TypeError("only a loop of its own, with the real clock, can be waited for")
        self.descriptor: int = runner.io_manager._epoll.fileno()
        self._clock = RealClock()
        self._ahead_s: float = trio.current_time() - self._clock.monotonic()  # trio begins to count somewhere else
        self._next_deadline = runner.deadlines.next_deadline
        self._idlers = runner.waiting_for_idle
        self._runnable: set[trio.lowlevel.Task] = set()
        self._deadline = 0.0
        self._is_known = False  # deadlines change with the steps of tasks; a round sets none
        self._rounds = ROUNDS_MAX  # the tasks that can run in this turn are unknown; later ones are reported
        instrument: Any = self
        trio.lowlevel.add_instrument(instrument)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._runnable.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._runnable.discard(task)
        self._is_known = False

    def left_s(self) -> float:
        """The seconds for which trio has nothing to do unless its descriptor becomes ready; 0 if it must have its turn
        now. To be called once a round."""
        self._rounds += 1
        if self._rounds <= ROUNDS_MAX and not self._runnable and not self._idlers:
            if not self._is_known:
                self._is_known = True
                self._deadline = self._next_deadline() - self._ahead_s
            left_s = self._deadline - self._clock.monotonic()
            if left_s > 0:
                return left_s if left_s < WAIT_S_MAX else WAIT_S_MAX
        self._rounds = 0
        return 0.0

    def give_turn(self) -> None:
        """Trio is to have its turn before the next wait."""
        self._rounds = ROUNDS_MAX

    def close(self) -> None:
        """Ends the reports of tasks."""
        instrument: Any = self
        trio.lowlevel.remove_instrument(instrument)
