"""Alerts: sentences with a remedy, made from the figures of brokers and groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.group_tasks import GroupState
from penstock.service.metrics import label_of
from penstock.service.troubles import clock_troubles_of, troubles_of

ERROR: Final = "error"
WARNING: Final = "warning"
SILENT_S: Final = 15.0
LAG_MAX: Final = 10_000
LAGGING_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert. ``level``: ``error`` or ``warning``; ``link``: the page that says more, or empty."""

    level: str
    text: str
    link: str = ""


def alerts_of(
    figures: Mapping[str, Mapping[str, float]], away: Sequence[str], groups: Iterable[GroupState], trouble: str
) -> list[Alert]:
    """All alerts in force, the errors first. ``figures``: by broker; ``trouble``: why brokers could not be asked."""
    found = [Alert(ERROR, f"the cluster cannot be asked: {trouble}")] if trouble else []
    found += [Alert(ERROR, f"broker {name} is away: its data is not shown", "/brokers") for name in away]
    for broker, told in figures.items():
        troubles = clock_troubles_of(told) + troubles_of(told)
        found += [Alert(ERROR, f"{broker}: {text}", "/brokers") for text in troubles]
        damaged = int(told.get("penstock_damaged_frames_total", 0))
        if damaged:
            found.append(Alert(ERROR, f"{broker}: damaged records passed over: {damaged} (`penstock store verify`)"))
        for name, silent_s in told.items():
            gateway = label_of(name, "penstock_gateway_silent_s", "gateway")
            if gateway is not None and silent_s >= SILENT_S:
                found.append(Alert(WARNING, f"gateway {gateway} was not heard for {silent_s:.0f} s", "/brokers"))
    found += _lagging(groups)
    return sorted(found, key=lambda one: one.level != ERROR)


def _lagging(groups: Iterable[GroupState]) -> list[Alert]:
    far = sorted((one for one in groups if one.lag > LAG_MAX), key=lambda one: -one.lag)
    found = [
        Alert(
            WARNING,
            f"group {one.group} is {one.lag:,} messages behind" + ("" if one.members else " and has no members"),
            "/groups",
        )
        for one in far[:LAGGING_SHOWN]
    ]
    if len(far) > LAGGING_SHOWN:
        found.append(Alert(WARNING, f"{len(far) - LAGGING_SHOWN} further groups are far behind", "/groups"))
    return found
