"""The use of a broker's limits, so that an operator hears of it before the broker refuses anything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.settings import BrokerSettings
from broker.state import BrokerState
from penstock.service.metrics import with_label
from penstock.service.troubles import LIMIT_USED, NEARLY_USED

EASED: Final = 0.9
"""A limit that is nearly used is reported once, and again after its use fell below this."""
LOOK_EVERY_S: Final = 1.0

_log = logging.getLogger(__name__)


class Usage:
    """The limits of one broker. Groups too: from nine tenths on those that were given up are forgotten
    (``broker/groups/readers.py``), so more than that is in use."""

    def __init__(self, state: BrokerState, settings: BrokerSettings, count_groups: Callable[[], int]) -> None:
        self._settings = settings
        self._used: Mapping[str, Callable[[], int]] = {
            "filters_max": lambda: state.filters.weight,
            "groups_max": count_groups,
            "halves_bytes_max": lambda: state.halves.bytes,
            "halves_max": lambda: len(state.halves),
            "retained_bytes_max": lambda: state.retained.bytes,
            "retained_max": lambda: len(state.retained),
            "sessions_bytes_max": lambda: state.sessions.bytes,
            "sessions_max": lambda: len(state.sessions),
            "shares_max": lambda: len(state.shares),
            "timers_bytes_max": lambda: state.timers.bytes,
            "topics_max": lambda: len(state.topics),
        }
        self._told: dict[str, None] = {}
        self._due = 0.0

    def shares(self) -> dict[str, float]:
        """By limit, how much of it is used: 0 to 1."""
        settings = self._settings
        return {limit: used() / max(1, getattr(settings, limit)) for limit, used in self._used.items()}

    def figures(self) -> dict[str, float]:
        """The same by the names of figures."""
        return {with_label(*LIMIT_USED, limit): round(share, 4) for limit, share in self.shares().items()}

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Tells of limits that are nearly reached, looking once a second."""
        if now < self._due:
            return
        self._due = now + LOOK_EVERY_S
        for limit, share in self.shares().items():
            if share >= NEARLY_USED and limit not in self._told:
                self._told[limit] = None
                _log.warning(
                    "%d %% of %s (%s) are used: when all of it is, further ones are refused",
                    int(share * 100),
                    limit,
                    f"{getattr(self._settings, limit):,}",
                )
            elif share < EASED and limit in self._told:
                del self._told[limit]
                _log.warning("there is room under %s again", limit)
