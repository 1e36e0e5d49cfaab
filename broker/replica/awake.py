"""The time that a node has lived through: sleep, and waiting for a turn on a busy machine, hardly count.

A node judges others by how long it has not heard them. If its own ticks come late, so do its reading and its answers.
So a gap between two ticks counts as ``gap_s`` at most: a node that stood still gives up no other node when it wakes,
and a node that is always starved waits longer in proportion.
"""

from __future__ import annotations


class AwakeClock:
    """Seconds that a node has lived through; they never go back. ``gap_s``: what a gap between ticks counts at most."""

    def __init__(self, now: float, gap_s: float) -> None:
        self._gap_s = gap_s
        self._ticked = self._lived = now

    def at(self, now: float) -> float:
        """The time lived through, when the clock shows ``now``."""
        return self._lived + min(now - self._ticked, self._gap_s)

    def tick(self, now: float) -> float:
        """A tick has come; returns what ``at`` does."""
        self._lived = self.at(now)
        self._ticked = now
        return self._lived
