"""Brokers that failed or are slow: messages without a key avoid them for a while. Pure.

A broker that failed is left alone for a fixed time, one that was slow for ten times as long as it took.
"""

from __future__ import annotations

from typing import Final

AVOID_S: Final = 5.0
"""Seconds for which messages without a key avoid a broker that failed."""
SLOW_S: Final = 0.5
"""A broker that took longer for an answer is slow."""
SLOW_FACTOR: Final = 10.0
SLOW_AVOID_S_MAX: Final = 60.0
ATTEMPT_S_MIN: Final = 1.0
ATTEMPTS: Final = 3
"""A message that may go elsewhere waits at a broker for a third of its time."""


class Faults:
    """The times until which clients avoid addresses."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def failed(self, address: str, now: float) -> None:
        """A broker could not be reached, or gave no answer."""
        self._until[address] = max(now + AVOID_S, self._until.get(address, 0.0))

    def answered(self, address: str, took_s: float, now: float) -> None:
        """A broker has answered."""
        if took_s > SLOW_S:
            until = now + min(SLOW_FACTOR * took_s, SLOW_AVOID_S_MAX)
            self._until[address] = max(until, self._until.get(address, 0.0))

    def avoided(self, now: float) -> frozenset[str]:
        """Addresses to avoid now."""
        if self._until:
            self._until = {address: until for address, until in self._until.items() if now < until}
        return frozenset(self._until)


def attempt_s(limit_s: float) -> float:
    """The time for which a message that may go elsewhere waits at one broker."""
    return min(limit_s, max(ATTEMPT_S_MIN, limit_s / ATTEMPTS))
