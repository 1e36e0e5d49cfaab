"""Rounds: all work of one wake-up, with one batch to every server at the end.

A reply that comes between rounds only notes its result and calls ``wake``; the next round does the work. Within a round
one time counts for all. ``finish`` repeats while immediate replies (of a broker in this process) ask for more, a
bounded number of times, and leaves the rest to the next round. Urgent output, acknowledgements above all, may leave
before the rest of the end is done (``send``), so that the devices work meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from penstock.world import Clock

_TURNS_MAX: Final = 8


@mypyc_attr(allow_interpreted_subclasses=True)
class Stage:
    """A part with work at a round's end. A base class, not a protocol: compiled, it is called in a fraction of the
    time, and every round calls all of them."""

    def flush(self) -> bool | None:
        """Does it. True if there is more to do at once."""
        raise NotImplementedError


class Rounds:
    """Schedule of rounds: when they begin, what they end with, how the next one is called for. ``number``: how many
    there were."""

    def __init__(self, clock: Clock, call: Callable[[], None]) -> None:
        """``call``: how a round is called for from outside of one."""
        self._clock = clock
        self._stages: list[Stage] = []
        self._call = call
        self._is_due = False
        self._is_wanted = False  # another round, after this one
        self._output: list[Stage] = []
        self._is_ending = False
        self.in_round = False
        self.number = 0
        self.now = clock.monotonic()
        self.now_ms = clock.wall_ms()

    def ends_with(self, *stages: Stage) -> None:
        """The stages of every round's end, in their order."""
        self._stages += stages

    def sent_by(self, output: Stage) -> None:
        """One more stage that writes out what its lines have to say: ``send`` calls it."""
        self._output.append(output)

    def send(self) -> None:
        """Writes out what there is so far, if this is a round's end. While devices are read their output is
        gathered."""
        if self._is_ending:
            for output in self._output:
                output.flush()

    def wake(self) -> None:
        """Calls for a round: the present one if there is one, else the next."""
        if not self._is_due:
            self._is_due = True
            if not self.in_round:
                self._call()

    def wake_last(self) -> None:
        """Calls for the last stage alone: a present round comes to it anyway."""
        if not self.in_round:
            self.wake()

    def again(self) -> None:
        """Calls for the next round: the present one has had its share."""
        if self.in_round:
            self._is_wanted = True
        else:
            self.wake()

    def read(self) -> float:
        """The time as it is now, also between rounds and late in a long one."""
        return self._clock.monotonic()

    def come_to(self, now: float) -> None:
        """It is this time, between rounds."""
        self.now = now

    def begin(self) -> None:
        self.number += 1
        self.in_round = True
        self.now = self._clock.monotonic()
        self.now_ms = self._clock.wall_ms()

    def finish(self) -> None:
        """The round's end: every stage in turn, until none has more to do."""
        self._is_ending = True
        for _ in range(_TURNS_MAX):
            self._is_due = False
            more = False
            for stage in self._stages:
                more = bool(stage.flush()) or more
            if not more and not self._is_due:
                break
        self.in_round = self._is_ending = False
        wanted, self._is_wanted = self._is_wanted, False
        if more or self._is_due or wanted:
            self._is_due = True
            self._call()
