"""A task that polls the cluster, so that brokers are asked once for all pages.

Every page shows the last result. A failure is an alert, never an error of a page.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import trio

from console.alerts import Alert, alerts_of
from console.history import GROUPS_MAX, GroupLags, Rates, Series, TopicRates
from penstock.client.admin import Admin
from penstock.client.group_tasks import GroupState
from penstock.errors import PenstockError
from penstock.world import Clock

LOOK_S: Final = 2.0
REST_S: Final = 10.0
SEEN_S: Final = 60.0
"""Seconds after the last request of a page for which ``LOOK_S`` is the interval; then it is ``REST_S``."""
GROUPS_EVERY: Final = 5
"""Number of looks for each one that asks for groups too."""
SHOWN_S: Final = 15 * 60
LAG_SHOWN_S: Final = 3600
PAGE: Final = 500

_log = logging.getLogger(__name__)
_COUNTED: Final = {
    "in": "rocketmq_messages_in_total",
    "out": "rocketmq_messages_out_total",
    "bytes_in": "rocketmq_throughput_in_total",
    "bytes_out": "rocketmq_throughput_out_total",
}


class Watch:
    """The cluster at the last look.

    Attributes:
        figures: counters and gauges of each broker.
        away: brokers that do not answer.
        groups: the first groups by name, with their lag.
        rates: messages and bytes per second over time.
        lags: lag of groups over time.
        trouble: why the last look failed; empty if it did not.
    """

    def __init__(self, reads: Admin, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock
        self._steps = Rates()
        self._topic_rates = TopicRates()
        self._seen_s = clock.monotonic()
        self.figures: Mapping[str, Mapping[str, float]] = {}
        self.away: tuple[str, ...] = ()
        self.groups: tuple[GroupState, ...] = ()
        self.rates = Series(tuple(_COUNTED), int(SHOWN_S / LOOK_S))
        self.lags = GroupLags(int(LAG_SHOWN_S / (LOOK_S * GROUPS_EVERY)))
        self.trouble = ""

    def seen(self) -> None:
        """Notes that a page was asked for."""
        self._seen_s = self._clock.monotonic()

    async def run(self) -> None:
        """Looks until cancelled; less often while no page is asked for. A mistake of ours is logged: it does not end a
        broker in the same process."""
        looks = 0
        while True:
            try:
                await self.look(with_groups=looks % GROUPS_EVERY == 0)
            except Exception:
                _log.exception("the cluster could not be looked at")
                self.trouble = "the console has failed; its log says why"
            looks += 1
            is_seen = self._clock.monotonic() - self._seen_s < SEEN_S
            await trio.sleep(LOOK_S if is_seen else REST_S)

    async def look(self, *, with_groups: bool) -> None:
        """One look."""
        at_s = self._clock.wall_ms() / 1000
        try:
            self.away = await self._reads.away()
            self.figures = await self._reads.figures()
            if with_groups:
                self.groups = await self._read_groups()
                self.lags.add(at_s, {one.group: one.lag for one in self.groups})
        except PenstockError as error:
            self.trouble = error.message
            return
        self.trouble = ""
        totals = {name: self.sum_of(figure) for name, figure in _COUNTED.items()}
        steps = self._steps.step(self._clock.monotonic(), totals)
        self.rates.add(at_s, [round(steps[name], 1) for name in _COUNTED])

    async def _read_groups(self) -> tuple[GroupState, ...]:
        found: list[GroupState] = []
        after = ""
        while len(found) < GROUPS_MAX:
            page = await self._reads.groups_page(after, PAGE)
            found += page.rows
            after = page.after
            if not after:
                break
        return tuple(found)

    def sum_of(self, figure: str) -> float:
        """A figure of all brokers together."""
        return sum([told.get(figure, 0.0) for told in self.figures.values()])

    def topic_rate(self, topic: str, stored: int) -> float | None:
        """Messages per second of a topic since a page last showed it, by the number ever stored; None if no page has
        shown it within a minute."""
        return self._topic_rates.look(topic, stored, self._clock.monotonic())

    def alerts(self) -> list[Alert]:
        """All alerts in force."""
        return alerts_of(self.figures, self.away, self.groups, self.trouble)
