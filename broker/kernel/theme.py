"""Themes of the broker: objects whose handlers carry requests out (``handler.py``), and what else they may have.

A theme that has ``tick`` is called as time passes, one that has ``figures`` is asked for its figures. What parked
requests wait for stirs by a name in ``Wakers``, which all themes of a broker share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

from penstock.errors import StorageFull

Wakers = dict[str, None]
"""Names of wakers that have stirred, in order: each wakes the requests that are parked for it."""


class Ticking(Protocol):
    """A theme for which time matters."""

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """A bounded piece of what time brings. ``age_ms``: by which ages are judged (``broker/store_clock.py``). May
        raise ``StorageFull``: it is tried again at the next tick."""
        ...


class Counting(Protocol):
    """A theme that counts."""

    def figures(self) -> dict[str, float]:
        """Gauges and counters, by metric name."""
        ...


class Themes:
    """All themes of a broker, in the order in which time comes to them.

    Attributes:
        all: each of them.
    """

    def __init__(self, themes: Sequence[object]) -> None:
        self.all: Final = tuple(themes)
        self._ticking: Final = tuple([cast(Ticking, one) for one in themes if hasattr(one, "tick")])
        self._counting: Final = tuple([cast(Counting, one) for one in themes if hasattr(one, "figures")])

    def tick(self, now: float, now_ms: int, age_ms: int) -> None:
        """Time has passed for all of them; one for which the disk has no room holds up no other."""
        for theme in self._ticking:
            try:
                theme.tick(now, now_ms, age_ms)
            except StorageFull:
                continue

    def figures(self) -> dict[str, float]:
        """The figures of all of them."""
        return {name: value for theme in self._counting for name, value in theme.figures().items()}
