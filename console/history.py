"""The latest samples of some figures, for charts. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

GROUPS_MAX: Final = 2_000
TOPICS_MAX: Final = 5_000
STEP_S: Final = 1.0
"""Two looks at a topic within this time, as of two browsers, give one rate."""
FORGOTTEN_S: Final = 60.0


class Series:
    """The latest samples of some numbers. ``count_max``: how many are kept."""

    def __init__(self, names: Sequence[str], count_max: int) -> None:
        self._names = tuple(names)
        self._rows: deque[tuple[float, ...]] = deque(maxlen=count_max)

    def add(self, at_s: float, values: Sequence[float]) -> None:
        """A sample; ``at_s``: seconds since 1970."""
        assert len(values) == len(self._names)
        self._rows.append((at_s, *values))

    def columns(self, names: Sequence[str] = ()) -> dict[str, object]:
        """The data of a chart: names (all, if none are given), and a list of times and one of values per name."""
        shown = tuple(names) or self._names
        places = [0, *[1 + self._names.index(name) for name in shown]]
        return {"names": shown, "data": [[row[at] for row in self._rows] for at in places]}

    @property
    def last(self) -> Mapping[str, float]:
        """The latest sample by name; empty before the first."""
        return dict(zip(self._names, self._rows[-1][1:], strict=True)) if self._rows else {}


class GroupLags:
    """Lag of groups over time. Of more than ``GROUPS_MAX`` groups the first ones by name are kept."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._by_group: dict[str, Series] = {}

    def add(self, at_s: float, lags: Mapping[str, int]) -> None:
        """Adds a sample of all groups, and drops groups that are not in it."""
        for group in self._by_group.keys() - lags.keys():
            del self._by_group[group]
        for group in sorted(lags)[:GROUPS_MAX]:
            self._by_group.setdefault(group, Series(("lag",), self._count_max)).add(at_s, (lags[group],))

    def of(self, group: str) -> Series:
        """The lag of a group; an empty series if it has no sample."""
        return self._by_group.get(group) or Series(("lag",), self._count_max)


class TopicRates:
    """Messages per second of the topics that pages show, from one look at a topic to the next. ``TOPICS_MAX`` topics
    are remembered, those that were looked at last."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, float | None]] = {}

    def look(self, topic: str, stored: int, now_s: float) -> float | None:
        """The rate of a topic, by the number of messages that were ever stored in it; None at the first look for a
        while."""
        at_s, before, rate = self._seen.pop(topic, (-math.inf, 0, None))
        if now_s - at_s >= STEP_S:
            rate = max(0, stored - before) / (now_s - at_s) if now_s - at_s <= FORGOTTEN_S else None
            at_s, before = now_s, stored
        self._seen[topic] = at_s, before, rate
        if len(self._seen) > TOPICS_MAX:
            del self._seen[next(iter(self._seen))]
        return rate


class Rates:
    """Growth per second of counters, from one look to the next."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._at_s: float | None = None

    def step(self, now_s: float, totals: Mapping[str, float]) -> dict[str, float]:
        """The step of a counter, by name; 0 at the first look, and after a restart of the counter."""
        seconds = None if self._at_s is None else max(now_s - self._at_s, 1e-6)
        before, self._before, self._at_s = self._before, dict(totals), now_s
        if seconds is None:
            return dict.fromkeys(totals, 0.0)
        return {name: max(0.0, total - before.get(name, total)) / seconds for name, total in totals.items()}
