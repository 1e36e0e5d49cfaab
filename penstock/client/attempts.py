"""What becomes of messages that a program could not work off: when each comes again, and how often it is tried. Pure.

A message is given back to its broker, which stores it for another attempt or as a dead letter
(docs/decisions/0036-messages-sleep-in-the-log.md). Only when that is durable does the group pass the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.arguments import check_count, check_seconds
from penstock.errors import InvalidRequest
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.retries import BY_TABLE, SendBack

ATTEMPTS_MAX: Final = 16
HOLD_UP_S: Final = 1.0
"""How long an ordered queue stays at a message that failed; twice as long after each further attempt ..."""
HOLD_UP_S_MAX: Final = 30.0
"""... and this at most."""
REASON_CHARACTERS_MAX: Final = 1_024
BACK_MAX: Final = 500
"""So many messages are given back by one request."""
DELAY_S_MAX: Final = 40 * 86_400.0


class Failed(NamedTuple):
    """A message that is to be given back: when it comes again (None: by the table), and why."""

    message: ReceivedMessage
    after_s: float | None
    reason: str


class Retry(Exception):
    """Raised by a handler to have its message again: after ``after_s`` seconds, or when the group's table says.

    Args:
        after_s: how long the message waits, at most 40 days.
        reason: what the dead letter says if this was the last attempt.
    """

    def __init__(self, after_s: float | None = None, reason: str = "") -> None:
        if after_s is not None:
            check_delay("after_s", after_s)
        super().__init__(reason or "the handler asked for another attempt")
        self.after_s = after_s


def check_delay(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless a message may wait for so many seconds."""
    check_seconds(name, given)
    if given > DELAY_S_MAX:  # type: ignore[operator]  # a number of seconds, as checked
        raise InvalidRequest(f"{name} is at most {DELAY_S_MAX:.0f} s (40 days), not {given!r}")


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a group tries a message, and how long it waits in between. All members should say the same.

    Attributes:
        max: attempts before a message is a dead letter.
        delays_s: the wait before the second attempt, the third and so on; the last one counts for all that follow.
            Where there is none the broker's table counts (its setting ``retry_delays_s``).
    """

    max: int = ATTEMPTS_MAX
    delays_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_count("attempts_max", self.max)
        for delay_s in self.delays_s:
            check_delay("a delay of retry_delays_s", delay_s)

    def send_back(
        self,
        who: tuple[str, str, int],
        message: ReceivedMessage,
        after_s: float | None,
        reason: str,
        *,
        is_last: bool = False,
    ) -> SendBack:
        """The request that gives a message back. ``who``: group, member and generation. ``is_last``: it is a dead
        letter, however often it was tried."""
        if after_s is None and self.delays_s:
            after_s = self.delays_s[min(message.attempts, len(self.delays_s) - 1)]
        delay_ms = BY_TABLE if after_s is None else round(after_s * 1000)
        reason = reason[:REASON_CHARACTERS_MAX]
        return SendBack(*who, message.queue.name, message.offset, delay_ms, 1 if is_last else self.max, reason)

    def hold_up_s(self, tried: int, after_s: float | None) -> float:
        """How long an ordered queue stays at a message that was tried so often."""
        if after_s is not None:
            return after_s
        if self.delays_s:
            return self.delays_s[min(tried, len(self.delays_s)) - 1]
        return min(HOLD_UP_S * 2.0 ** min(tried - 1, 10), HOLD_UP_S_MAX)


USUAL: Final = Attempts()


def attempts_of(attempts_max: int, retry_delays_s: Iterable[float] | None) -> Attempts:
    """The attempts that a program wants. Raises ``InvalidRequest``."""
    try:
        return Attempts(attempts_max, tuple(retry_delays_s or ()))
    except TypeError:
        raise InvalidRequest(f"retry_delays_s are seconds, not {retry_delays_s!r}") from None


def check_received(message: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a message that it received."""
    if not isinstance(message, ReceivedMessage):
        raise InvalidRequest(f"nack takes a received message, not {message!r}")


def check_reason(reason: object) -> None:
    """Raises ``InvalidRequest`` unless a program gave a text."""
    if not isinstance(reason, str):
        raise InvalidRequest(f"reason is a str, not {reason!r}")


def retry_of(error: Exception) -> tuple[float | None, str]:
    """What the failure of a handler asks for: when its message comes again, and the reason that is stored."""
    asked = _retry_in(error)
    if asked is not None:
        return asked.after_s, str(asked)
    return None, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_in(error: BaseException) -> Retry | None:
    """The wish for another attempt, also where a task group of the handler has packed it."""
    if isinstance(error, Retry):
        return error
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            found = _retry_in(one)
            if found is not None:
                return found
    return None
