"""Retries of messages that a program could not process: when each is delivered again, and how often. Pure.

A message is returned to its broker, which stores it for another attempt or as a dead letter
(docs/decisions/0036-messages-sleep-in-the-log.md). Only when that is durable does the group pass the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.arguments import check_count, check_seconds
from penstock.errors import InvalidRequest
from penstock.protocol.received import ReceivedMessage
from penstock.protocol.requests.retries import BY_TABLE, Back, SendBack

ATTEMPTS_MAX: Final = 16
HOLD_UP_S: Final = 1.0
"""How long an ordered queue stays at a message that failed; twice as long after each further attempt ..."""
HOLD_UP_S_MAX: Final = 30.0
"""... and this at most."""
REASON_CHARACTERS_MAX: Final = 1_024
BACK_MAX: Final = 500
"""Maximum number of messages that one request returns."""
DELAY_S_MAX: Final = 40 * 86_400.0


class Failed(NamedTuple):
    """A message to return: seconds until its retry (None: by the table), and the reason."""

    message: ReceivedMessage
    after_s: float | None
    reason: str


class Retry(Exception):
    """A handler raises this to get its message again: after ``after_s`` seconds, or by ``retry_delays_s``.

    Args:
        after_s: seconds until the retry, at most 40 days.
        reason: text that the dead letter keeps if this was the last attempt.

    Raises:
        InvalidRequest: ``after_s`` is no number of seconds, or too large.
    """

    def __init__(self, after_s: float | None = None, reason: str = "") -> None:
        _check_retry(after_s, reason)
        super().__init__(reason or "the handler asked for another attempt")
        self.after_s = after_s


def check_delay(name: str, given: object) -> None:
    """Raises ``InvalidRequest`` unless this is a number of seconds that a message may wait."""
    check_seconds(name, given)
    if given > DELAY_S_MAX:  # type: ignore[operator]  # a number of seconds, as checked
        raise InvalidRequest(f"{name} is at most {DELAY_S_MAX:.0f} s (40 days), not {given!r}")


@dataclass(frozen=True, slots=True)
class Attempts:
    """The number of attempts for a message, and the waits between them; the same for all members of a group.

    Attributes:
        max: attempts before a message becomes a dead letter.
        delays_s: seconds before the second attempt, the third and so on; the last value applies to all later ones. If
            empty, the broker's setting ``retry_delays_s`` applies.
    """

    max: int = ATTEMPTS_MAX
    delays_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_count("attempts_max", self.max)
        for delay_s in self.delays_s:
            check_delay("a delay of retry_delays_s", delay_s)

    @property
    def as_term(self) -> tuple[int, ...]:
        """The terms of a group's members, as ``JoinGroup`` has them; empty for the default."""
        if self == USUAL:
            return ()
        return self.max, *[round(delay_s * 1000) for delay_s in self.delays_s]

    def send_back(
        self,
        who: tuple[str, str, int],
        message: ReceivedMessage,
        after_s: float | None,
        reason: str,
        *,
        is_last: bool = False,
    ) -> SendBack:
        """The request that returns a message. ``who``: group, member and generation. ``is_last``: it becomes a
        dead letter, whatever its number of attempts."""
        queue, offset, delay_ms, reason = self.back(message, after_s, reason)
        return SendBack(*who, queue, offset, delay_ms, 1 if is_last else self.max, reason)

    def back(self, message: ReceivedMessage, after_s: float | None, reason: str) -> Back:
        """The row of a request that returns several messages."""
        if after_s is None and self.delays_s:
            after_s = self.delays_s[min(message.attempts, len(self.delays_s) - 1)]
        delay_ms = BY_TABLE if after_s is None else round(after_s * 1000)
        if not reason.isascii() or len(reason) > REASON_CHARACTERS_MAX:
            reason = reason[:REASON_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()  # a lone surrogate
        return Back(message.queue.name, message.offset, delay_ms, reason)

    def hold_up_s(self, tried: int, after_s: float | None) -> float:
        """Seconds for which an ordered queue waits at a message after ``tried`` attempts."""
        if after_s is not None:
            return after_s
        if self.delays_s:
            return self.delays_s[min(tried, len(self.delays_s)) - 1]
        return min(HOLD_UP_S * 2.0 ** min(tried - 1, 10), HOLD_UP_S_MAX)


USUAL: Final = Attempts()


def attempts_of(attempts_max: int, retry_delays_s: Iterable[float] | None) -> Attempts:
    """The attempts that a program wants. Raises ``InvalidRequest``."""
    try:
        if isinstance(retry_delays_s, str | bytes | Mapping):
            raise TypeError
        return Attempts(attempts_max, () if retry_delays_s is None else tuple(retry_delays_s))
    except TypeError:
        raise InvalidRequest(f"retry_delays_s are seconds, not {retry_delays_s!r}") from None


def check_received(message: object, method: str = "nack") -> None:
    """Raises ``InvalidRequest`` unless a program gave a message that it received."""
    if not isinstance(message, ReceivedMessage):
        raise InvalidRequest(f"{method} takes a received message, not {message!r}")


def check_nack(message: object, after_s: object, reason: object) -> None:
    """Raises ``InvalidRequest`` unless these are arguments of ``nack``."""
    check_received(message)
    _check_retry(after_s, reason)


def _check_retry(after_s: object, reason: object) -> None:
    if after_s is not None:
        check_delay("after_s", after_s)
    if not isinstance(reason, str):
        raise InvalidRequest(f"reason is a str, not {reason!r:.100}")


def retry_of(error: BaseException) -> tuple[float | None, str]:
    """The retry for a handler's failure: when its message comes again, and the stored reason."""
    asked = _retry_in(error)
    if asked is not None:
        return asked.after_s, _words(asked)
    kind, words = type(error).__name__, _words(error)
    return None, f"{kind}: {words}" if words else kind


def _words(error: BaseException) -> str:
    """The text of an exception; empty if that raises."""
    try:
        return str(error)
    except Exception:
        return ""


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
