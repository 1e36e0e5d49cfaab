"""How long a query waits for servers that are away: a broker that restarts, or a machine that boots, is no data loss.

A failed question is asked again while its error says that this may help: at least as often as ``retries`` says, and
until the patience is over. Then the error is raised, and Spark commits nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.world import Clock, RealClock, pause

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Terms(Protocol):
    """The options of a query that concern waiting."""

    @property
    def patience_s(self) -> float: ...

    @property
    def retries(self) -> int: ...

    @property
    def retry_pause_s(self) -> float: ...


class Patience:
    """The wait for one answer.

    Args:
        patience_s: says how long to ask again, from the first failure on; as long as the options say if left out.
    """

    def __init__(
        self,
        options: Terms,
        patience_s: Callable[[], float] | None = None,
        clock: Clock | None = None,
        wait: Callable[[float], None] = pause,
    ) -> None:
        self._options = options
        self._patience_s = patience_s or (lambda: options.patience_s)
        self._clock = clock or RealClock()
        self._wait = wait
        self._failures = 0
        self._since = 0.0
        self._has_told = False

    def ask(self, question: Callable[[], _T], final: tuple[type[PenstockError], ...] = ()) -> _T:
        """The answer to a question, which is asked again while that can help. Raises the last error, and one that is
        ``final`` at once."""
        while True:
            try:
                return question()
            except final:
                raise
            except PenstockError as error:
                self.wait_or_raise(error)

    def wait_or_raise(self, error: PenstockError) -> None:
        """Waits until it is time to ask again. Raises ``error`` where that cannot help, or no longer will."""
        if not error.retryable:
            raise error
        now, patience_s = self._clock.monotonic(), self._patience_s()
        if not self._failures:
            self._since = now
        self._failures += 1
        if self._failures > self._options.retries and now >= self._since + patience_s:
            raise error
        if patience_s and not self._has_told:
            self._has_told = True
            _log.warning("%s; asking again for %g s", error.message, patience_s)
        self._wait(self._options.retry_pause_s)
