"""Durations as people write them on the command line: ``90``, ``30s``, ``5m``, ``2h``, ``7d``. Pure."""

from __future__ import annotations

from typing import Any, Final

import click

from penstock.client.delays import seconds_of
from penstock.errors import InvalidRequest


class Duration(click.ParamType[float]):
    """A duration in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, str) and not value.isdigit():
            try:
                return seconds_of(value)
            except InvalidRequest:
                self.fail(f"{value!r} is no duration: write 90, 30s, 5m, 2h or 7d", param, ctx)
        return float(value)


DURATION: Final = Duration()


def shown_duration(seconds: int) -> str:
    """A duration for people, in the largest unit that is whole."""
    for unit, unit_s in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= unit_s and not seconds % unit_s:
            return f"{seconds // unit_s}{unit}"
    return f"{seconds}s"
