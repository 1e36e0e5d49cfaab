"""``penstock status``: which servers of the cluster answer, and what troubles them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import click

from penstock.blocking.routes import Routes
from penstock.cli.display import json_option, print_rows
from penstock.errors import PenstockError
from penstock.protocol.requests.routes import QueryRoute, Route
from penstock.protocol.requests.servers import BrokerFigures, Ping, ReadFigures, ServerInfo
from penstock.service.metrics import label_of, with_label
from penstock.service.troubles import clock_troubles_of, troubles_of
from penstock.world import RealClock

STATUS_TROUBLED = 1
SILENT_S = 15.0
"""A gateway is heard three times in a lease, which is as long unless `session_lease_s` says otherwise."""


@click.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show the state of every name server and every broker.

    The exit status is 1 if one does not answer or has troubles. Gateways are listed with the time of their last request
    to the broker that is the home of sessions; their status pages (/readyz) name brokers that they miss.

    \b
    Examples:
      penstock status
      penstock --server a:9876,b:9876 status --json | jq 'select(.troubles != [])'
    """
    rows: list[dict[str, Any]] = []
    gateways: list[dict[str, Any]] = []
    with Routes(context.obj) as routes:
        known: dict[tuple[str, str], list[str]] = {}  # a broker, and the name servers that have it
        away: set[str] = set()
        for address in routes.servers:
            row = _asked(routes, address, "name server")
            rows.append(row)
            if not row["troubles"]:
                live, gone = _brokers_at(routes, address, row)
                away.update(gone)
                for broker in live:
                    known.setdefault(broker, []).append(address)
        answering = [row["address"] for row in rows if not row["troubles"]]
        for (name, address), having in sorted(known.items()):
            row = _asked(routes, address, "broker") | {"name": name}
            row["troubles"] += [f"not registered at {one}" for one in answering if one not in having]
            figures = _figures_of(routes, address, row["troubles"])
            rows.append(row | _told_by(figures))
            gateways += _gateways_in(figures)
    for name in sorted(away - {name for name, _ in known}):
        rows.append(_row("broker") | {"name": name, "troubles": ["away: it has stopped, or cannot be reached"]})
    if answering and not known:
        rows[0]["troubles"].append("no broker is registered")
    rows += sorted(gateways, key=itemgetter("name"))
    for row in rows:
        row["state"] = "; ".join(row["troubles"]) or row.get("state") or "ok"
    columns = ("server", "name", "address", "version", "answered_ms", "topics", "sessions", "log_mib", "state")
    print_rows(rows, columns, as_json=as_json)
    if any(row["troubles"] for row in rows):
        context.exit(STATUS_TROUBLED)


def _asked(routes: Routes, address: str, server: str) -> dict[str, Any]:
    """A row for one server: who it says it is, or why it does not."""
    row = _row(server) | {"address": address}
    clock = RealClock()
    began = clock.monotonic()
    try:
        info = routes.link(address).ask(Ping(), ServerInfo)
    except PenstockError as error:
        row["troubles"].append(error.message)
        return row
    row["answered_ms"] = round((clock.monotonic() - began) * 1000, 1)
    row["version"] = info.version
    if info.role.replace("namesrv", "name server") != server:
        row["troubles"].append(f"this is no {server} but a {info.role}")
    return row


def _row(server: str) -> dict[str, Any]:
    row: dict[str, Any] = {"server": server, "name": None, "address": None, "version": None, "answered_ms": None}
    return row | {"topics": None, "sessions": None, "log_mib": None, "troubles": []}


def _brokers_at(routes: Routes, address: str, row: dict[str, Any]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Names and addresses of the brokers that a name server has, and names of those that are away."""
    try:
        found = routes.link(address).ask(QueryRoute(""), Route)
    except PenstockError as error:
        row["troubles"].append(error.message)
        return [], ()
    return [(one.broker, one.address) for one in found.brokers], found.away


def _figures_of(routes: Routes, address: str, troubles: list[str]) -> Mapping[str, float]:
    """The figures of a broker; its troubles are added."""
    try:
        reply = routes.link(address).ask(ReadFigures(), BrokerFigures)
    except PenstockError as error:
        if error.message not in troubles:
            troubles.append(error.message)
        return {}
    figures: Mapping[str, float] = dict(zip(reply.names, reply.values, strict=True))
    troubles += clock_troubles_of(figures) + troubles_of(figures)
    damaged = int(figures.get("penstock_damaged_frames_total", 0))
    if damaged:
        troubles.append(f"damaged records passed over: {damaged} (`penstock store verify`)")
    return figures


def _told_by(figures: Mapping[str, float]) -> dict[str, Any]:
    """Some of it, for a broker's row."""
    if not figures:
        return {}
    return {
        "topics": int(figures.get("penstock_topics", 0)),
        "sessions": int(figures.get("penstock_mqtt_sessions", 0)),
        "log_mib": int(figures.get("rocketmq_storage_size", 0)) >> 20,
    }


def _gateways_in(figures: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each gateway that a broker has heard of. One that is gone for good, or has another name now, is no
    trouble: who takes it out of service knows."""
    rows = []
    for name, silent_s in figures.items():
        gateway = label_of(name, "penstock_gateway_silent_s", "gateway")
        if gateway is None:
            continue
        row = _row("gateway") | {"name": gateway}
        row["sessions"] = int(figures.get(with_label("penstock_gateway_sessions", "gateway", gateway), 0))
        if silent_s >= SILENT_S:
            row["state"] = f"not heard for {silent_s:.0f} s"
        rows.append(row)
    return rows
