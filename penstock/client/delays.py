"""The delivery time of a delayed message, in the forms that programs and people write. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from numbers import Real
from typing import Final, NamedTuple

from penstock.client.arguments import TIME_MS_MIN, check_seconds, time_ms
from penstock.errors import InvalidRequest

Delay = float | timedelta | str
"""Seconds, a ``timedelta``, or a number with its unit, as RocketMQ's levels have: ``"30s"``, ``"10m"``, ``"2h"``."""
DELAY_S_MAX: Final = 40 * 86_400
"""Maximum seconds of a delay."""
_UNIT_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_WRITTEN: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


class Due(NamedTuple):
    """The due time of a message in milliseconds: ``from_now``, else since 1970."""

    ms: int
    from_now: bool


def due_of(delay: Delay | None, at: datetime | int | None) -> Due | None:
    """The time of a message's delivery; ``None`` for at once. Raises ``InvalidRequest``."""
    if delay is None:
        return None if at is None else Due(_time_ms(at), from_now=False)
    if at is not None:
        raise InvalidRequest("delay and at exclude each other", hint="give one of them")
    delay_s = seconds_of(delay)
    if delay_s > DELAY_S_MAX:
        raise InvalidRequest(f"a message is delivered at most {DELAY_S_MAX // 86_400} days later, not {delay!r}")
    ms = -int(-delay_s * 1000 // 1)
    # One more, because the broker counts from the beginning of the millisecond that it is in: never early.
    return Due(min(ms + (ms > 0), DELAY_S_MAX * 1000), from_now=True)


def seconds_of(delay: object) -> float:
    """A duration in seconds, as programs and people write it. Raises ``InvalidRequest``."""
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, str):
        written = _WRITTEN.fullmatch(delay)
        if written is None:
            raise InvalidRequest(
                f"delay {delay!r} is no time", hint="seconds, or a number and ms, s, m, h or d: 30s, 10m, 2h"
            )
        return int(written[1]) * _UNIT_S[written[2]]
    if isinstance(delay, bool) or not isinstance(delay, Real):
        raise InvalidRequest(f"delay is seconds, a timedelta or a str such as '30s', not {delay!r}")
    check_seconds("delay", delay)
    return float(delay)


def _time_ms(at: datetime | int) -> int:
    ms = time_ms("at", at)
    if ms < TIME_MS_MIN:
        raise InvalidRequest(f"at is milliseconds since 1970, and {at!r} is before 1973", hint="seconds times 1000")
    return ms
