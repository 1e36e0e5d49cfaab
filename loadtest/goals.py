"""The speed that issues ask for, as data, and whether a measurement reaches it.

A ``Goal`` looks at one figure of an ``Outcome``, by itself or as a ratio to another server's in the same round.
``least`` is what must be reached, ``aim`` what is hoped for. Nothing here decides a test: the benchmark prints, people
judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DISK: Final = ("penstock", "compiled")
"""Servers that acknowledge what is on the disk: most goals are meant for them."""
CACHE: Final = ("penstock cache", "compiled cache")
"""Servers that acknowledge what is in the log: the goals that name the level ``cache``."""
LOGIN: Final = ("penstock login", "compiled login")
"""Servers with users and rules, for each of ``DISK``."""
SAME_OPEN: Final = "the same without a login"
"""The reference of a ratio: for each of ``LOGIN`` its own server of ``DISK``."""
BARE: Final = "bare"
BARE_CACHE: Final = "bare cache"
"""What does the least that a server must (``bare_server``): what it does not reach is hardly to be had here."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One demand.

    Attributes:
        what: the figure in words, for tables.
        figure: the field of an ``Outcome``, or the name of one of its ``figures``.
        least: the bound; ``aim``: the hope, 0 where the issue has none.
        is_ratio: the figure is divided by that of ``reference``.
        is_upper: the figure may be at most the bound, otherwise it is at least that.
        unit: of what is compared; ``scale``: by which it is divided to be in that unit.
    """

    what: str
    figure: str
    least: float
    aim: float = 0.0
    is_ratio: bool = True
    is_upper: bool = False
    unit: str = "x"
    scale: float = 1.0
    reference: str = "mosquitto"

    def is_reached(self, value: float) -> bool:
        return value <= self.least if self.is_upper else value >= self.least

    def is_aimed(self, value: float) -> bool:
        return bool(self.aim) and (value <= self.aim if self.is_upper else value >= self.aim)

    def verdict(self, value: float) -> str:
        """What is printed beside the figure."""
        if not self.is_reached(value):
            return "no"
        return "yes, aim too" if self.is_aimed(value) else "yes"

    def told(self, value: float) -> str:
        """A value in the goal's unit."""
        scaled = value / self.scale
        text = f"{scaled:,.2f}" if scaled < 100 else f"{scaled:,.0f}"
        return f"{text}{'' if self.unit == 'x' else ' '}{self.unit}"

    @property
    def demand(self) -> str:
        """The bound in words."""
        return f"{'at most' if self.is_upper else 'at least'} {self.told(self.least)}{self._of}"

    @property
    def hope(self) -> str:
        return self.told(self.aim) if self.aim else "-"

    @property
    def _of(self) -> str:
        return f" {self.reference}" if self.is_ratio else ""


def at_least(least: float, aim: float) -> tuple[Goal, ...]:
    """A rate, as a multiple of mosquitto's."""
    return (Goal("rate", "rate", least, aim),)


def at_most(what: str, figure: str, least: float, aim: float) -> Goal:
    """A time or a cost, as a multiple of mosquitto's."""
    return Goal(what, figure, least, aim, is_upper=True)


def bound(what: str, figure: str, least: float, aim: float, unit: str, scale: float = 1.0) -> tuple[Goal, ...]:
    """A figure that is compared with nobody's."""
    return (Goal(what, figure, least, aim, is_ratio=False, is_upper=True, unit=unit, scale=scale),)
