"""Waiting in trio's stead while there is nothing for trio to do: a turn of its loop costs more than most rounds.

A shard waits for its poller between any two rounds. By ``trio.lowlevel.wait_readable`` that is a turn of trio's loop: a
task put aside, a registration, a task run again, more work than it is to store a message. Where no task can run, no
deadline is due and nothing but the poller becomes ready, the turn would find nothing else to do, so the shard may as
well wait by itself, for its poller and for trio's own descriptor together. Whatever concerns trio (a socket, a thread's
result, a signal, a deadline, a task that a round has woken) ends that wait, and trio has its turn.

Which tasks can run an instrument tells. What else this must know of trio's loop, trio does not tell publicly: it is
read here and nowhere else, never changed, and where a trio has it not (or its clock is not the real one, or it is a
guest), there is no such wait. Decision 23.
"""

from __future__ import annotations

import select
from typing import Any, Final

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT, SystemClock

ROUNDS_MAX: Final = 16
"""After so many rounds trio has its turn anyway."""
WAIT_S_MAX: Final = 60.0


class Idling(trio.abc.Instrument):
    """Waits for one descriptor in the stead of the trio loop that it was made in."""

    def __init__(self, descriptor: int) -> None:
        """Raises ``AttributeError`` or ``TypeError`` where this trio is not known well enough."""
        runner: Any = GLOBAL_RUN_CONTEXT.runner
        if runner.is_guest or type(runner.clock) is not SystemClock:
            raise TypeError("only a loop of its own, with the real clock, can be waited for")
        own = runner.io_manager._epoll.fileno()
        self._clock = runner.clock
        self._deadlines = runner.deadlines
        self._idlers = runner.waiting_for_idle
        self._descriptor = descriptor
        self._runnable: set[trio.lowlevel.Task] = set()
        self._rounds = ROUNDS_MAX  # who can run in this turn nobody knows; who can from the next one on, we are told
        self._epoll = select.epoll()
        self._epoll.register(own, select.EPOLLIN)
        self._epoll.register(descriptor, select.EPOLLIN)
        trio.lowlevel.add_instrument(self)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._runnable.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._runnable.discard(task)

    def wait(self) -> bool:
        """Returns True when the descriptor is ready and trio has nothing to do; False when trio must have its turn."""
        self._rounds += 1
        if self._rounds <= ROUNDS_MAX and not self._runnable and not self._idlers:
            left_s = self._deadlines.next_deadline() - self._clock.current_time()
            if left_s > 0:
                ready = self._epoll.poll(min(left_s, WAIT_S_MAX), 2)
                if len(ready) == 1 and ready[0][0] == self._descriptor:
                    return True
        self._rounds = 0
        return False

    def close(self) -> None:
        """Gives its descriptor back."""
        self._epoll.close()
        trio.lowlevel.remove_instrument(self)
