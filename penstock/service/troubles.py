"""What the figures of a service say is wrong: for ``/healthz`` and for ``penstock status``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.service.metrics import label_of

LIMIT_USED: Final = ("penstock_limit_used", "limit")
"""A figure and its label: how much of a limit is used, 0 to 1."""
NEARLY_USED: Final = 0.95
JUMP: Final = "process_clock_jump_s"
_MEANINGS: Final = {
    "penstock_disk_full": "the disk is full; messages are refused until there is room",
    "penstock_index_unwritable": "index/ or checkpoint/ cannot be written; memory grows and retention waits meanwhile",
    "penstock_sessions_unreadable": "what was saved of some MQTT sessions cannot be read; the broker's log names one",
    "penstock_namesrv_away": "a name server does not answer; whoever asks it does not find this broker",
    "penstock_store_time_ahead_s": "the log's last store time is ahead of the clock; store times go slowly until then",
    "penstock_timers_frozen_s": "the clock has jumped forward; no delayed message fires until it is back, or `penstock"
    " timer confirm-clock` says that it is right",
    "penstock_ages_behind_s": "the clock is far ahead of the log; retention by age and ends of sessions and of silent"
    " groups wait until it has stood for an hour",
}
"""Figure -> what it means that it is not 0."""


def clock_troubles_of(figures: Mapping[str, float]) -> list[str]:
    """The same of the machine's clock, as each process sees it."""
    jumps = {f"{value:+.0f}" for name, value in figures.items() if value and name.partition("{")[0] == JUMP}
    return [f"the machine's clock has jumped by {jump} s, which is not believed yet" for jump in sorted(jumps)]


def troubles_of(figures: Mapping[str, float]) -> list[str]:
    """One sentence each; none if there are none."""
    found = [meaning for name, meaning in _MEANINGS.items() if figures.get(name)]
    for name, used in figures.items():
        limit = label_of(name, *LIMIT_USED)
        if limit and used >= NEARLY_USED:
            found.append(f"{limit} is used to {int(used * 100)} %; when all of it is, whoever needs more is refused")
    return found
