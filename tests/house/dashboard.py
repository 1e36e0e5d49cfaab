"""Draws docs/monitoring/dashboard.json, for Grafana; ``python tests/house/dashboard.py`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "monitoring" / "dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
AT = 'instance=~"$instance"'


def quantiles(family: str) -> list[tuple[str, str]]:
    """The median and the 99th percentile of a histogram."""
    rate = f"sum by (le) (rate({family}_bucket{{{AT}}}[$__rate_interval]))"
    return [(f"histogram_quantile({part}, {rate})", name) for part, name in ((0.5, "median"), (0.99, "99 %"))]


def rate(family: str, by: str = "instance") -> tuple[str, str]:
    """Growth per second of a counter."""
    return f"sum by ({by}) (rate({family}{{{AT}}}[$__rate_interval]))", f"{{{{{by}}}}}"


def now(family: str, by: str = "instance") -> tuple[str, str]:
    """A gauge."""
    return f"sum by ({by}) ({family}{{{AT}}})", f"{{{{{by}}}}}"


def both(first: str, second: str, by: str) -> list[tuple[str, str]]:
    """Growth per second of two counters, each line with the counter's name."""
    return [(rate(family, by)[0], f"{family} {{{{{by}}}}}") for family in (first, second)]


# Title, unit, and the queries with their legends; two in a row.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Messages stored", "ops", [rate("rocketmq_messages_in_total")]),
    ("Messages read", "ops", [rate("rocketmq_messages_out_total")]),
    ("Bytes stored", "Bps", [rate("rocketmq_throughput_in_total")]),
    ("Commit log", "bytes", [now("rocketmq_storage_size")]),
    ("A sync of the disk takes", "s", quantiles("penstock_sync_seconds")),
    ("A request waits for the disk", "s", quantiles("penstock_stored_seconds")),
    ("From the store to a reader", "s", quantiles("penstock_delivery_seconds")),
    ("From the sender to a reader", "s", quantiles("penstock_end_to_end_seconds")),
    (
        "Lag of groups",
        "short",
        [(f"topk(10, {now('rocketmq_consumer_lag_messages', 'consumer_group')[0]})", "{{consumer_group}}")],
    ),
    ("Busiest topics", "ops", [(f"topk(10, {rate('penstock_topic_messages_total', 'topic')[0]})", "{{topic}}")]),
    ("Devices connected", "short", [now("gateway_connections")]),
    ("Sessions away", "short", [now("penstock_sessions_away")]),
    (
        "Furthest behind: sessions",
        "short",
        [(f"max by (client) (penstock_sessions_lag_messages_most{{{AT}}})", "{{client}}")],
    ),
    ("Oldest unread message", "s", [(f"max by (by) (penstock_unread_age_s{{{AT}}})", "{{by}}")]),
    ("Limits used", "percentunit", [(f"topk(5, max by (limit) (penstock_limit_used{{{AT}}}))", "{{limit}}")]),
    ("Who leads", "short", [now("penstock_replica_leads")]),
    ("Epoch of the lead", "short", [(f"max by (instance) (penstock_replica_epoch{{{AT}}})", "{{instance}}")]),
    ("Copies are behind", "bytes", [(f"max by (node) (penstock_replica_behind_bytes{{{AT}}})", "{{node}}")]),
    ("Copies have been behind for", "s", [(f"max by (node) (penstock_replica_behind_s{{{AT}}})", "{{node}}")]),
    ("Groups of copies that store nothing", "short", [now("penstock_replica_unready")]),
    ("Damaged parts of copies", "short", [now("penstock_replica_damaged")]),
    ("Events delivered", "ops", [rate("events_delivered_total", "rule")]),
    ("Events that failed, and dead letters", "ops", [*both("events_failed_total", "events_dead_total", "rule")]),
    ("Oldest undelivered event", "s", [(f"max by (rule) (events_oldest_undelivered_s{{{AT}}})", "{{rule}}")]),
    ("Rules that pause", "short", [(f"max by (rule) (events_breaker_open{{{AT}}}) > 0", "{{rule}}")]),
    ("Devices refused at login", "ops", [rate("gateway_logins_refused_total", "cause")]),
    (
        "Native logins and requests refused",
        "ops",
        [*both("penstock_access_refused_total", "namesrv_access_refused_total", "instance")],
    ),
    (
        "Audit log",
        "ops",
        [*both("penstock_audit_entries_total", "penstock_audit_left_out_total", "instance")],
    ),
    ("Memory", "bytes", [now("process_resident_memory_bytes")]),
]


def panel(at: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for number, (query, legend) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """All of it."""
    variable = {
        "name": "instance",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(process_resident_memory_bytes, instance)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }
    return {
        "title": "Penstock",
        "uid": "penstock",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}, variable]},
        "panels": [panel(at, *one) for at, one in enumerate(PANELS)],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
