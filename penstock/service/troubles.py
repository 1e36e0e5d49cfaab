"""Troubles of a service, read from its figures: for ``/healthz`` and for ``penstock status``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.service.metrics import label_of

LIMIT_USED: Final = ("penstock_limit_used", "limit")
"""A figure and its label: how much of a limit is used, 0 to 1."""
NEARLY_USED: Final = 0.95
REPLICA_HEARD: Final = ("penstock_replica_heard_s", "node")
"""A figure and its label: when another node with a copy was heard."""
REPLICA_SILENT_S: Final = 30.0
JUMP: Final = "process_clock_jump_s"
_MEANINGS: Final = {
    "penstock_disk_full": "the disk is full; messages are refused until there is room",
    "penstock_index_unwritable": "index/ or checkpoint/ cannot be written; memory grows and retention waits meanwhile",
    "penstock_sessions_unreadable": "what was saved of some MQTT sessions cannot be read; the broker's log names one",
    "penstock_replica_unready": "too few nodes with a copy are there; nothing is stored until more are: see `penstock"
    " replica list`",
    "penstock_replica_damaged": "its copy of the log is damaged; the damaged parts come from another copy",
    "penstock_namesrv_away": "a name server does not answer; clients that ask it do not find this broker",
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
    if figures.get("penstock_replica_has_leader") == 0:
        found.append("no node leads its log; nothing is stored until one is elected: `penstock replica list`")
    for name, used in figures.items():
        node = label_of(name, *REPLICA_HEARD)
        if node and used > REPLICA_SILENT_S and figures.get("penstock_replica_leads"):
            found.append(f"node {node}, which has a copy of its log, has been silent for {used:,.0f} s")
        limit = label_of(name, *LIMIT_USED)
        if limit and used >= NEARLY_USED:
            found.append(f"{limit} is used to {int(used * 100)} %; when all of it is, further ones are refused")
    return found
