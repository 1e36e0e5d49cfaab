"""The first page: alerts, rates, and the groups with the largest lag; live."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from console import markup
from console.alerts import ERROR, Alert
from console.visits import Visit

BEHIND_SHOWN: Final = 5


async def overview(visit: Visit) -> Response:
    """The page."""
    return visit.page(
        "Overview",
        markup.live("/overview/live", _live(visit)),
        markup.chart("Messages per second, the last 15 minutes", "/overview/rates", "msg/s"),
        path="/",
    )


async def live(visit: Visit) -> Response:
    """The part of it that is fetched again and again."""
    return visit.part(_live(visit))


async def rates(visit: Visit) -> Response:
    """Messages in and out per second over time, for the chart."""
    return JSONResponse(visit.watch.rates.columns(("in", "out")))


def alert_list(alerts: list[Alert]) -> Markup:
    """Alerts as a list, or that there are none."""
    if not alerts:
        return Markup('<p class="calm">{} No alerts.</p>').format(markup.badge("ok", "good"))
    rows = [
        Markup("<li>{} {}</li>").format(
            markup.badge(one.level, one.level), markup.link(one.text, one.link) if one.link else one.text
        )
        for one in alerts
    ]
    kind = "error" if any(one.level == ERROR for one in alerts) else "warning"
    return Markup('<ul class="alerts {}">{}</ul>').format(kind, markup.joined(rows))


def _live(visit: Visit) -> Markup:
    watch = visit.watch
    rates, behind = watch.rates.last, sorted(watch.groups, key=lambda one: -one.lag)[:BEHIND_SHOWN]
    cards = [
        ("Messages in", f"{rates.get('in', 0):,.0f}/s", "/topics"),
        ("Messages out", f"{rates.get('out', 0):,.0f}/s", "/groups"),
        ("Data in", f"{markup.size(rates.get('bytes_in', 0))}/s", "/topics"),
        ("Log", markup.size(watch.sum_of("rocketmq_storage_size")), "/brokers"),
        ("MQTT sessions", f"{watch.sum_of('penstock_mqtt_sessions'):,.0f}", "/clients"),
        ("MQTT clients away", f"{watch.sum_of('penstock_sessions_away'):,.0f}", "/clients"),
        ("Topics", f"{watch.sum_of('penstock_topics'):,.0f}", "/topics"),
        ("Group lag", f"{sum([one.lag for one in watch.groups]):,}", "/groups"),
    ]
    tiles = [
        Markup('<li><a href="{}"><span class="value">{}</span> <span class="name">{}</span></a></li>').format(
            to, value, name
        )
        for name, value, to in cards
    ]
    rows = [(markup.link(one.group, "/group", name=one.group), one.members, one.lag) for one in behind if one.lag]
    return markup.joined(
        [
            markup.section("Alerts", alert_list(watch.alerts())),
            Markup('<ul class="tiles" aria-label="Now">{}</ul>').format(markup.joined(tiles)),
            markup.section(
                "Furthest behind",
                markup.table(
                    "Groups with the most messages to read",
                    ("Group", "Members#", "Lag#"),
                    rows,
                    empty="No group is behind.",
                ),
            ),
        ]
    )
