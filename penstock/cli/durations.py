"""Times as people write and read them on the command line: durations (``90``, ``5m``), times, places in a queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from penstock.client.arguments import Place, Start
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


def shown_time(ms: int) -> str:
    """A time in milliseconds since 1970 for people, with the local time zone."""
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")


_TIME: Final = "2026-12-01T08:00, or with a time zone 2026-12-01T08:00+01:00"


def time_of(text: str, option: str, instead: str = "") -> datetime:
    """The time that an option gives; without a time zone it is local. ``instead``: what else it might have been."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        what = f"neither {instead} nor a time" if instead else "no time"
        raise click.BadParameter(f"{text!r} is {what}: write {_TIME}", param_hint=option) from None


def start_of(text: str, option: str, instead: str = "earliest, latest") -> Start:
    """The start that an option gives: ``earliest``, ``latest`` or a time."""
    if text == "earliest" or text == "latest":
        return "earliest" if text == "earliest" else "latest"
    return time_of(text, option, instead)


def place_of(text: str, option: str) -> Place:
    """The place in a queue that an option gives: ``earliest``, ``latest``, an offset or a time."""
    return int(text) if text.isascii() and text.isdigit() else start_of(text, option, "earliest, latest, an offset")
