"""How long to wait: before another attempt, and for a reply. Pure: attempt and generator in, seconds out.

Waits are drawn evenly from zero to a bound that doubles ("full jitter"), so that a thousand clients that lost the same
server do not come back together.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from penstock.errors import PenstockError
from penstock.protocol.requests.request import Request
from penstock.world import Rng

TIMEOUT_S: Final = 10.0
"""Deadline of a call that names none."""
SAY_AFTER_S: Final = 1.0
"""A request that is retried for longer than this gets a log line with the reason."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Bounds of the waits between attempts, in seconds."""

    first_s: float = 0.05
    cap_s: float = 2.0

    def wait_s(self, attempt: int, rng: Rng) -> float:
        """Before attempt ``attempt`` (the first repetition is 1)."""
        bound_s = self.first_s * 2.0 ** min(attempt - 1, 32)
        return rng.random() * min(bound_s, self.cap_s)


def patience_s(request: Request, timeout_s: float | None, default_s: float = TIMEOUT_S) -> float:
    """The time to wait for a reply: a request that itself waits at the server (long poll) is given that on top."""
    if timeout_s is not None:
        return timeout_s
    wait_s: float = getattr(request, "wait_s", 0.0)
    return default_s + wait_s


class Telling:
    """Tells once why something is still tried, when that has lasted a second."""

    def __init__(self, log: logging.Logger, began: float) -> None:
        self._log = log
        self._after = began + SAY_AFTER_S
        self._told = False

    def note(self, error: PenstockError, next_at: float, deadline: float) -> None:
        """An attempt failed; the next one is at ``next_at``."""
        if next_at >= self._after and not self._told:
            self._told = True
            self._log.warning("%s; trying for another %.0f s", error.message, deadline - next_at)


def worth_another_try(error: PenstockError, now: float, deadline: float) -> bool:
    """Whether the same request may succeed later and there is time left."""
    return error.retryable and now < deadline
