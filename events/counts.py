"""What a rule has done, and the figures of an event bridge as `/metrics` has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class RuleCounts:
    """Counts of one rule at this instance. ``waiting``: store times, in milliseconds, of events that were read and are
    not delivered. ``trouble``: why the rule does not run, empty while it does."""

    matched: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    is_breaker_open: bool = False
    trouble: str = ""
    waiting: dict[int, int] = field(default_factory=dict)  # store time -> events

    def began(self, stored_ms: int) -> None:
        self.waiting[stored_ms] = self.waiting.get(stored_ms, 0) + 1

    def ended(self, stored_ms: int) -> None:
        left = self.waiting[stored_ms] - 1
        if left:
            self.waiting[stored_ms] = left
        else:
            del self.waiting[stored_ms]

    def oldest_s(self, now_ms: int) -> float:
        """Age of the oldest event in hand."""
        return max(0.0, (now_ms - min(self.waiting)) / 1000) if self.waiting else 0.0

    def document(self, now_ms: int) -> dict[str, object]:
        """As the HTTP face shows it."""
        state = "waits" if self.trouble else "paused" if self.is_breaker_open else "runs"
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
