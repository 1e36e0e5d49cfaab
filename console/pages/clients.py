"""Pages of MQTT clients and their sessions: a list with waiting messages, disconnect, end, and the tree of
subscriptions."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from console import markup
from console.visits import PAGE_ROWS, Visit
from penstock.client.page_tasks import SessionsOnPage, SessionState, SubscriptionState
from penstock.errors import NoRoute

PATH: Final = "/clients"
FILTERS_PATH: Final = "/filters"
LEVELS_SHOWN: Final = 200
COLUMNS: Final = ("Client", "State", "Since", "User", "Address", "Protocol", "Gateway", "Subscriptions#", "Waiting#")
NO_SESSIONS: Final = SessionsOnPage((), 0)


async def clients(visit: Visit) -> Response:
    """A page of sessions."""
    after, contains = visit.ask_number("after", 0), visit.ask("contains")
    page = await _page(visit)
    return visit.page(
        "MQTT clients",
        markup.listing(PATH, "a part of a client id", contains, after, page.after, _table(page)),
        path=PATH,
    )


async def live(visit: Visit) -> Response:
    """The rows, which are fetched again and again."""
    return visit.part(_table(await _page(visit)))


async def _page(visit: Visit) -> SessionsOnPage:
    try:
        return await visit.cluster.reads.sessions_page(visit.ask_number("after", 0), PAGE_ROWS, visit.ask("contains"))
    except NoRoute:  # no device has connected yet
        return NO_SESSIONS


def _table(page: SessionsOnPage) -> Markup:
    return markup.table("MQTT sessions", COLUMNS, [_row(one) for one in page.rows], empty="There are no such sessions.")


def _row(one: SessionState) -> tuple[markup.Cell, ...]:
    return (
        markup.link(one.client, "/client", id=one.client),
        _state(one),
        _since(one),
        one.user or "anonymous",
        one.address,
        one.protocol,
        one.gateway,
        one.subscriptions,
        one.waiting,
    )


def _state(one: SessionState) -> Markup:
    return markup.badge("connected", "good") if one.connected else markup.badge("away")


def _since(one: SessionState) -> markup.Cell:
    if one.connected:
        return f"for {markup.duration(one.connected_s)}" if one.connected_s else None
    return markup.moment(one.gone_ms)


async def client(visit: Visit) -> Response:
    """One session."""
    id = visit.ask("id")
    state, subscriptions = await visit.cluster.reads.session(id)
    hidden = {"id": id}
    cut = visit.action("/client/disconnect", f"Disconnect {id}", hidden, kind="danger")
    end = visit.action("/client/end", f"Remove the session of {id}", hidden, kind="danger")
    actions = []
    if visit.may_act and state.connected:
        actions.append(markup.asked("Disconnect …", "Its session stays, and it may come back at once.", cut))
    if visit.may_act:
        warning = "It is disconnected, its will is published, and its waiting messages are lost."
        actions.append(markup.asked("Remove the session …", warning, end))
    return visit.page(
        f"Client {id}",
        markup.live(markup.address("/client/live", id=id), _standing(state, subscriptions), every_s=3),
        *actions,
        path=PATH,
    )


async def client_live(visit: Visit) -> Response:
    """The client's state, which is fetched again and again."""
    return visit.part(_standing(*await visit.cluster.reads.session(visit.ask("id"))))


def _standing(state: SessionState, subscriptions: list[SubscriptionState]) -> Markup:
    ends = "never" if state.never_ends else f"{markup.duration(state.expiry_s)} after its client is gone"
    about = markup.facts(
        [
            ("State", _state(state)),
            ("Since", _since(state)),
            ("User", state.user or "anonymous"),
            ("Address", state.address),
            ("Protocol", state.protocol),
            ("Gateway", state.gateway),
            ("Session ends", ends if state.expiry_s else "with its connection"),
            ("Waiting", state.waiting),
        ]
    )
    rows = [(one.filter, one.qos, one.waiting) for one in subscriptions]
    listed = markup.table("Subscriptions", ("Filter", "QoS#", "Waiting#"), rows, empty="It has none.")
    return about + markup.section("Subscriptions", listed)


async def disconnect(visit: Visit) -> Response:
    """Cuts a connection."""
    id = visit.ask("id")
    await visit.cluster.acts.disconnect(id)
    return visit.done(f"{id} was disconnected.", "/client", id=id)


async def end(visit: Visit) -> Response:
    """Ends a session."""
    id = visit.ask("id")
    await visit.cluster.acts.end_session(id)
    return visit.done(f"The session of {id} has ended.", PATH)


async def filters(visit: Visit) -> Response:
    """A level of the tree of open filters."""
    parent = visit.ask("below") if "below" in visit.request.query_params else None
    skip = max(0, visit.ask_number("skip", 0))
    page = await visit.cluster.reads.filter_levels(parent, skip, LEVELS_SHOWN)
    rows = []
    for level, filters, holders in page.levels:
        whole = level if parent is None else f"{parent}/{level}"
        name = level or "(empty)"
        below = filters - (1 if holders else 0)
        rows.append((markup.link(name, FILTERS_PATH, below=whole) if below else name, whole, below, holders))
    following = skip + len(rows)
    return visit.page(
        "Subscriptions",
        _way(parent),
        markup.table(
            "Open filters, level by level",
            ("Level", "Filter", "Filters below#", "Gateways and sessions#"),
            rows,
            empty="No filter is open here.",
        ),
        markup.pager(_below(parent, 0) if skip else "", _below(parent, following) if following < page.count else ""),
        path=FILTERS_PATH,
    )


def _below(parent: str | None, skip: int) -> str:
    """The address of a page of a level; an empty parent is a level too."""
    if parent == "":
        return f"{FILTERS_PATH}?below=&skip={skip}"
    return markup.address(FILTERS_PATH, below=parent, skip=skip or "")


def _way(parent: str | None) -> Markup:
    """The place in the tree."""
    links = [markup.link("all", FILTERS_PATH)]
    if parent is not None:
        levels = parent.split("/")
        for at, level in enumerate(levels, 1):
            links.append(Markup('<a href="{}">{}</a>').format(_below("/".join(levels[:at]), 0), level or "(empty)"))
    return Markup('<nav class="way" aria-label="Place in the tree">{}</nav>').format(Markup(" / ").join(links))
