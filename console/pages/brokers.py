"""Brokers and gateways: their state, figures and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.pages.overview import alert_list
from console.visits import Visit
from penstock.client.replica_tasks import ReplicaGroup, ReplicaNode
from penstock.client.replica_words import advice_on, shown_bytes, state_of
from penstock.client.topic_tasks import BrokerState
from penstock.errors import InvalidRequest, PenstockError
from penstock.service.metrics import label_of, with_label

PATH: Final = "/brokers"
ALLOWED: Final = {"rw": (True, True), "r": (True, False), "w": (False, True), "none": (False, False)}


async def brokers(visit: Visit) -> Response:
    """The page."""
    return visit.page("Brokers", markup.live("/brokers/live", await _live(visit), every_s=3), path=PATH)


async def live(visit: Visit) -> Response:
    """The part of the page that is fetched again and again."""
    return visit.part(await _live(visit))


async def _live(visit: Visit) -> Markup:
    watch = visit.watch
    rows = [_row(one, watch.figures.get(one.broker, {})) for one in await visit.cluster.reads.brokers()]
    rows += [(name, markup.badge("away", "error"), "", "", "", None, None, "", None) for name in watch.away]
    columns = ("Broker", "State", "Address", "Version", "Clients may", "Topics#", "Sessions#", "Log", "Not synced#")
    return markup.joined(
        [
            markup.section("Alerts", alert_list(watch.alerts())),
            markup.section("Brokers", markup.table("Brokers", columns, rows)),
            *await _copies(visit),
            markup.section("Gateways", _gateways(watch.figures)),
        ]
    )


def _row(one: BrokerState, figures: Mapping[str, float]) -> tuple[markup.Cell, ...]:
    may = {(True, True): "read, write", (True, False): "read", (False, True): "write"}.get(
        (one.read, one.write), "nothing"
    )
    return (
        markup.link(one.broker, "/broker", name=one.broker),
        markup.badge("lives", "good"),
        one.address,
        one.version,
        may,
        figures.get("penstock_topics"),
        figures.get("penstock_mqtt_sessions"),
        markup.size(figures.get("rocketmq_storage_size", 0)),
        figures.get("rocketmq_storage_flush_behind_bytes"),
    )


async def _copies(visit: Visit, broker: str = "") -> list[Markup]:
    try:
        return copies(await visit.cluster.reads.replicas(broker))
    except PenstockError as error:
        return [markup.section("Copies", markup.sentence(f"No node lists the copies: {error.message}"))]


def copies(groups: Sequence[ReplicaGroup]) -> list[Markup]:
    """The nodes that have copies of brokers' logs, and what to do; nothing where no broker has several."""
    groups = [one for one in groups if len(one.nodes) > 1]
    if not groups:
        return []
    columns = ("Broker", "Node", "Role", "State", "Epoch#", "Behind", "Heard", "Repaired#", "Address")
    rows = [_copy(group, one) for group in groups for one in group.nodes]
    words = [markup.sentence(f"{group.group}: {said}") for group in groups for said in advice_on(group)]
    return [markup.section("Copies", markup.table("Copies of logs", columns, rows), *words)]


def _copy(group: ReplicaGroup, one: ReplicaNode) -> tuple[markup.Cell, ...]:
    kind = "error" if one.is_away else "good" if one.is_level or one.role == "leader" else "warning"
    return (
        group.group,
        one.node,
        one.role,
        markup.badge(state_of(one), kind),
        group.epoch,
        "" if one.behind is None else shown_bytes(one.behind),
        "" if one.heard_s is None else f"{one.heard_s:,.0f} s ago",
        one.repaired,
        one.address,
    )


def _gateways(by_broker: Mapping[str, Mapping[str, float]]) -> Markup:
    rows = []
    for figures in by_broker.values():
        for name, silent_s in figures.items():
            gateway = label_of(name, "penstock_gateway_silent_s", "gateway")
            if gateway is not None:
                sessions = figures.get(with_label("penstock_gateway_sessions", "gateway", gateway))
                rows.append((gateway, f"{silent_s:.0f} s ago", sessions))
    columns = ("Gateway", "Heard", "Sessions#")
    return markup.table("Gateways", columns, rows, empty="None was heard of.")


async def broker(visit: Visit) -> Response:
    """One broker: its limits and all its figures."""
    name = visit.ask("name")
    found = await visit.cluster.reads.figures()
    if name not in found:
        raise InvalidRequest(f"there is no broker {name}, or it is away")
    figures, limits, others = found[name], [], []
    for figure, value in sorted(figures.items()):
        limit = label_of(figure, "penstock_limit_used", "limit")
        if limit is None and "_bucket{" not in figure:
            others.append((figure, value))
        elif limit is not None:
            limits.append((limit, f"{value:.0%}"))
    options = (("rw", "read and write"), ("r", "read only"), ("w", "write only"), ("none", "do nothing"))
    allow = visit.action(
        "/broker/allow", "Change", {"name": name}, markup.choice("Clients may", "access", options, "rw")
    )
    maintenance = "For maintenance: producers and consumers use other brokers meanwhile."
    return visit.page(
        f"Broker {name}",
        markup.asked("What clients may do …", maintenance, allow) if visit.may_act else Markup(""),
        *await _copies(visit, name),
        markup.section("Limits", markup.table("How much of each limit is used", ("Limit", "Used"), limits)),
        markup.section("Figures", markup.table("Figures", ("Figure", "Value#"), others)),
        path=PATH,
    )


async def allow(visit: Visit) -> Response:
    """Changes what clients may do at a broker."""
    name, access = visit.ask("name"), visit.ask("access")
    if access not in ALLOWED:
        raise InvalidRequest(f"clients may {', '.join(ALLOWED)}, not {access!r:.40}")
    read, write = ALLOWED[access]
    await visit.cluster.acts.allow_broker(name, read=read, write=write)
    return visit.done(f"What clients may do at {name} was changed.", "/broker", name=name)
