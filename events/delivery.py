"""The outcome of one attempt to deliver, and the time of the next one: outcomes, retries, breakers, rates. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from events.fields import number_of
from events.problems import invalid_config
from penstock.world import Rng

RETRY_AFTER_S_MAX: Final = 86_400.0
_AGAIN: Final = frozenset({408, 425, 429})


class Failed(Exception):
    """A delivery that did not succeed.

    Attributes:
        is_final: whether another attempt is of no use.
        after_s: when the target wants the next attempt at the earliest; None where it does not say.
    """

    def __init__(self, reason: str, *, is_final: bool = False, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.is_final = is_final
        self.after_s = after_s


def judge(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> None:
    """Raises ``Failed`` unless the answer of an HTTP target says that it has the event. ``headers``: names in lower
    case."""
    if 200 <= status < 300:
        return
    said = re.sub(r"[^ -~]+", " ", body[:200].decode("utf-8", "replace")).strip()
    reason = f"HTTP {status}" + (f": {said}" if said else "")
    if 300 <= status < 400:
        raise Failed(f"{reason} (redirects are not followed)", is_final=True)
    if status < 500 and status not in _AGAIN:
        raise Failed(reason, is_final=True)
    raise Failed(reason, after_s=retry_after_s(headers.get("retry-after", ""), now_ms))


def retry_after_s(text: str, now_ms: int) -> float | None:
    """Seconds that a ``Retry-After`` asks for, at most a day; None where it says nothing that can be read."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return min(max(0.0, (at - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds()), RETRY_AFTER_S_MAX)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The rule for repeating failed events.

    Attributes:
        kind: ``backoff`` (a random wait between ``first_s`` and ``cap_s``) or ``decay`` (from ``first_s`` on twice as
            long each time, up to ``cap_s``).
        attempts: how often it is tried at most.
        max_age_s: maximum of all waits together.
    """

    kind: str = "decay"
    attempts: int = 1_000
    first_s: float = 1.0
    cap_s: float = 512.0
    max_age_s: float = 86_400.0

    def wait_s(self, failed: int, rng: Rng) -> float | None:
        """Seconds from the failure number ``failed``, from 1 on, to the next attempt; None if that was the last."""
        if failed >= self.attempts:
            return None
        if self.kind == "backoff":
            return rng.uniform(self.first_s, self.cap_s)
        waited = 0.0
        for number in range(failed):
            wait = min(self.cap_s, self.first_s * 2.0 ** min(number, 40))
            waited += wait
            if waited > self.max_age_s:
                return None
        return wait


BACKOFF: Final = RetryPolicy("backoff", 3, 10.0, 20.0)
DECAY: Final = RetryPolicy()


def policy_of(spec: object) -> RetryPolicy:
    """The policy that a rule says. Raises ``Problem``."""
    if spec is None:
        return DECAY
    if not isinstance(spec, dict) or spec.get("kind", "decay") not in ("backoff", "decay"):
        raise invalid_config("retry is an object of the kind backoff or decay", "/retry")
    usual = BACKOFF if spec.get("kind") == "backoff" else DECAY
    fields: dict[str, Any] = {}
    limits = {"attempts": (1, 1_000), "first_s": (0, 86_400), "cap_s": (0, 86_400), "max_age_s": (0, 40 * 86_400)}
    for name, value in spec.items():
        if name == "kind":
            continue
        if name not in limits:
            raise invalid_config(f"{name!r:.60} is not known of retry: kind, {', '.join(limits)}", f"/retry/{name}")
        fields[name] = number_of(value, f"/retry/{name}", *limits[name], whole=name == "attempts")
    policy = replace(usual, **fields)
    if policy.first_s > policy.cap_s:
        raise invalid_config("first_s is not more than cap_s", "/retry/first_s")
    return policy


class Breaker:
    """Keeps attempts away from a target that fails every time: after ``failures`` in a row it is open for ``first_s``,
    twice as long after each trial that fails too; then one attempt may try."""

    def __init__(self, failures: int = 20, first_s: float = 1.0, cap_s: float = 60.0) -> None:
        self._failures_max = failures
        self._first_s, self._cap_s = first_s, cap_s
        self._failures = 0
        self._opened = 0
        self._until = 0.0
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        return self._opened > 0

    def wait_s(self, now: float) -> float:
        """Seconds until an attempt may be made; 0: now, and the caller makes it."""
        if not self._opened:
            return 0.0
        if self._is_trying:
            return max(0.1, self._until - now)
        if now < self._until:
            return self._until - now
        self._is_trying = True
        return 0.0

    def succeeded(self) -> None:
        """An attempt has reached the target."""
        self._failures = self._opened = 0
        self._is_trying = False

    def failed(self, now: float) -> None:
        """An attempt has not."""
        self._failures += 1
        if self._is_trying or (not self._opened and self._failures >= self._failures_max):
            self._until = now + min(self._cap_s, self._first_s * 2.0 ** min(self._opened, 30))
            self._opened += 1
            self._is_trying = False

    def given_up(self) -> None:
        """The attempt that was to try was not made."""
        self._is_trying = False


class Rate:
    """Attempts per second: a bucket that holds one second's worth. 0: any number."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._tokens = max(1.0, per_s)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Takes one, and returns after how many seconds it may be used."""
        if not self._per_s:
            return 0.0
        self._tokens = min(max(1.0, self._per_s), self._tokens + max(0.0, now - self._at) * self._per_s)
        self._at = max(self._at, now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_s)
