"""Counters of rules, and the figures of an event bridge as `/metrics` has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

RETRIES_MAX: Final = 1_000
RETRY_GRACE_MS: Final = 30_000
"""Milliseconds after which a retry that was due and did not come here has gone to another instance."""


@dataclass(slots=True)
class RuleCounts:
    """Counts of one rule at this instance. ``waiting``: store times, in milliseconds, of events that were read and are
    not delivered. ``trouble``: why the rule does not run, empty while it does. ``is_resting``: whether it waits for an
    event that is for it, without a consumer."""

    matched: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    is_breaker_open: bool = False
    is_resting: bool = False
    trouble: str = ""
    waiting: dict[int, int] = field(default_factory=dict)  # store time -> events
    retries: dict[int, int] = field(default_factory=dict)  # store time -> when its latest retry is due

    def began(self, stored_ms: int) -> None:
        self.waiting[stored_ms] = self.waiting.get(stored_ms, 0) + 1

    def ended(self, stored_ms: int) -> None:
        """An attempt is over. That the event was given back is said after that."""
        self.retries.pop(stored_ms, None)
        left = self.waiting[stored_ms] - 1
        if left:
            self.waiting[stored_ms] = left
        else:
            del self.waiting[stored_ms]

    def given_back(self, stored_ms: int, due_ms: int) -> None:
        """An event waits at the broker for its next attempt."""
        if len(self.retries) >= RETRIES_MAX and stored_ms not in self.retries:
            newest = max(self.retries)
            if newest < stored_ms:
                return
            del self.retries[newest]
        self.retries[stored_ms] = max(due_ms, self.retries.get(stored_ms, 0))

    def oldest_s(self, now_ms: int) -> float:
        """Age of the oldest event that is not delivered: in hand, or given back by this instance for a retry."""
        for stored_ms in [one for one, due_ms in self.retries.items() if due_ms + RETRY_GRACE_MS < now_ms]:
            del self.retries[stored_ms]
        known = [min(one) for one in (self.waiting, self.retries) if one]
        return max(0.0, (now_ms - min(known)) / 1000) if known else 0.0

    def document(self, now_ms: int) -> dict[str, object]:
        """The counts as the HTTP face shows them."""
        state = "paused" if self.is_breaker_open else "rests" if self.is_resting else "runs"
        state = "waits" if self.trouble else state
        counts = {"matched": self.matched, "delivered": self.delivered, "failed": self.failed, "dead": self.dead}
        return {"state": state, "trouble": self.trouble, **counts, "oldest_undelivered_s": self.oldest_s(now_ms)}


def figures_of(rules: Mapping[tuple[str, str], RuleCounts], now_ms: int) -> dict[str, float]:
    """The figures of all rules."""
    found: dict[str, float] = {"events_rules": len(rules)}
    for (bus, rule), one in rules.items():
        labels = f'{{bus="{bus}",rule="{rule}"}}'
        found[f"events_matched_total{labels}"] = one.matched
        found[f"events_delivered_total{labels}"] = one.delivered
        found[f"events_failed_total{labels}"] = one.failed
        found[f"events_dead_total{labels}"] = one.dead
        found[f"events_breaker_open{labels}"] = one.is_breaker_open
        found[f"events_oldest_undelivered_s{labels}"] = one.oldest_s(now_ms)
    return found
