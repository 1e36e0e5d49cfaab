"""``penstock session``: the MQTT sessions of a cluster, how far each is behind, and their end by an operator.

What a session has read is in bytes that only gateways write and read (``gateway/sessions/session_state.py``), so this
lives here and not with the client's commands. It is as the gateway saved it last: of a connected client up to half a
second old.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from gateway.sessions.session_state import Flow, read_flow, read_terms
from gateway.sessions.subscriptions import Subscription
from penstock.blocking import Routes, bootstrap
from penstock.blocking.link import BlockingLink
from penstock.cli.display import confirm, incomplete_option, json_option, print_json, print_rows, to_list
from penstock.errors import Damaged, NoRoute, QueueNotFound, SessionNotFound, UnknownRequest
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.sessions import (
    CONNECTED,
    HOME_TOPIC,
    NEVER_ENDS,
    AskSubscriptions,
    ClosedSession,
    CloseSession,
    ListSessions,
    SessionRow,
    SessionsPage,
    SessionTerms,
    Subscriptions,
)
from penstock.world import RealClock
from topicmap.names import is_share
from topicmap.queues import filter_queue

ANSWER_S: Final = 2.0
"""How long gateways have to say what their clients are subscribed to."""
_COLUMNS: Final = ("client", "user", "state", "gateway", "away_s", "ends_in_s", "subscriptions", "on_way", "waiting")
_PLACES: Final = ("filter", "qos", "broker", "next", "end", "waiting", "history")


@click.group()
def session() -> None:
    """Look at MQTT sessions and how far they are behind; end one."""


@session.command("list")
@incomplete_option
@json_option
@click.pass_obj
def list_sessions(server: str, allow_incomplete: bool, as_json: bool) -> None:
    """List the sessions of connected and absent clients, and their waiting messages.

    Waiting counts messages of its QoS 1 and 2 subscriptions that it has not been sent; on the way are those that it
    has not acknowledged. A dash stands for an unknown value. `penstock share list` shows the waiting messages of
    shared subscriptions.

    \b
    Examples:
      penstock session list
      penstock session list --json | jq -s 'sort_by(-.waiting) | .[:10]'
    """
    now_ms = RealClock().wall_ms()
    rows: list[dict[str, Any]] = []
    with bootstrap(server) as routes:
        ends = _Ends(routes, allow_incomplete)
        after = 0
        while True:
            page = _ask(routes, ListSessions(after))
            flows, told = [_flow_of(one) for one in page.sessions], _told(routes, page.sessions)
            ends.learn([place for flow in flows if flow is not None for place in flow.places])
            rows += [_row(one, flow, ends, now_ms, told) for one, flow in zip(page.sessions, flows, strict=True)]
            after = page.after
            if not after:
                break
    rows.sort(key=lambda row: str(row["client"]))
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no sessions")


@session.command()
@click.argument("client")
@incomplete_option
@json_option
@click.pass_obj
def show(server: str, client: str, allow_incomplete: bool, as_json: bool) -> None:
    """Show where the session of a client id stands in each of its subscriptions, at each broker.

    \b
    Examples:
      penstock session show d7
    """
    with bootstrap(server) as routes:
        one = _find(routes, client)
        flow, ends = read_flow(one.flow), _Ends(routes, allow_incomplete)
        ends.learn(flow.places)
        terms = one.terms
        for told in _told(routes, [one], wants_terms=True).values():
            terms = told.terms
            if told.filters and not terms:
                raise NoRoute(f"the gateway of {client} cannot say which {told.filters} subscriptions it has")
        rows = [row for subscription in read_terms(terms) for row in _standing(subscription, flow, ends)]
    print_rows(rows, _PLACES, as_json=as_json, empty="it has no subscriptions")


@session.command()
@click.argument("client")
@click.option("--yes", is_flag=True, help="Do not ask before.")
@json_option
@click.pass_obj
def end(server: str, client: str, yes: bool, as_json: bool) -> None:
    """End the session of a client id: cut its client off and forget what the session holds.

    Its will, if it has one, is published. A client that connects again begins a new session; to keep it out, use
    access rules (`allow user NAME client PATTERN`).

    \b
    Examples:
      penstock session end d7
      penstock session end d7 --yes --json
    """
    with bootstrap(server) as routes:
        found = _find(routes, client)
        state = "connected" if found.state == CONNECTED else "away"
        if not yes:
            whose = f"user {found.user}, " if found.user else ""
            confirm(f"End the session of {client} ({whose}{state})? What waits for it is lost.", "the session goes on")
        home, epoch = _home(routes), 0
        while True:
            epoch = home.ask(CloseSession(client, epoch, force=epoch > 0), ClosedSession).epoch
            if not epoch:
                break
    if as_json:
        print_json({"client": client, "user": found.user or None, "state": state, "ended": True})
    else:
        click.echo(f"the session of {client} has ended")


def _find(routes: Routes, client: str) -> SessionRow:
    """Raises ``SessionNotFound``."""
    page = _ask(routes, ListSessions(client=client))
    if not page.sessions:
        raise SessionNotFound(f"there is no session of {client}", hint="`penstock session list` shows all")
    return page.sessions[0]


def _ask(routes: Routes, request: ListSessions) -> SessionsPage:
    """The answer of the home of sessions. Raises as ``_home``."""
    return _home(routes).ask(request, SessionsPage)


def _home(routes: Routes) -> BlockingLink:
    """Raises ``BrokerAway`` where the home of sessions is away, and ``NoRoute`` where there is none."""
    try:
        [home, *_] = routes.holders(HOME_TOPIC).brokers
    except NoRoute:
        raise NoRoute("no broker keeps MQTT sessions", hint="no device has connected yet") from None
    return routes.link(home.address)


def _told(routes: Routes, sessions: Sequence[SessionRow], *, wants_terms: bool = False) -> dict[str, SessionTerms]:
    """The gateways' answers about connected clients whose sessions are not saved, by client."""
    clients = tuple([one.client for one in sessions if _is_gateways(one)])
    if not clients:
        return {}
    asked = AskSubscriptions(clients, wants_terms, ANSWER_S)
    with contextlib.suppress(UnknownRequest):  # a broker of an older version
        [home, *_] = routes.topic(HOME_TOPIC)
        return {one.client: one for one in routes.link(home.address).ask(asked, Subscriptions).told}
    return {}


def _is_gateways(one: SessionRow) -> bool:
    """Whether its gateway alone knows its subscriptions."""
    return one.state == CONNECTED and not one.terms


def _flow_of(one: SessionRow) -> Flow | None:
    """``None`` where it cannot be read: what depends on it is unknown."""
    with contextlib.suppress(Damaged):
        return read_flow(one.flow)
    return None


def _count_terms(one: SessionRow, told: Mapping[str, SessionTerms]) -> int | None:
    if _is_gateways(one):
        return told[one.client].filters if one.client in told else None
    with contextlib.suppress(Damaged):
        return len(read_terms(one.terms))
    return None


def _waiting(flow: Flow, ends: _Ends) -> int:
    return sum([ends.beyond(filter, broker, place.next) or 0 for (filter, broker), place in flow.places.items()])


def _row(
    one: SessionRow, flow: Flow | None, ends: _Ends, now_ms: int, told: Mapping[str, SessionTerms]
) -> dict[str, Any]:
    away_s = max(0, now_ms - one.gone_ms) // 1000 if one.gone_ms else None
    is_bounded = away_s is not None and one.expiry_s != NEVER_ENDS
    return {
        "client": one.client,
        "user": one.user or None,
        "state": "connected" if one.state == CONNECTED else "away",
        "gateway": one.owner or None,
        "away_s": away_s,
        "ends_in_s": max(0, one.expiry_s - (away_s or 0)) if is_bounded else None,
        "subscriptions": _count_terms(one, told),
        "on_way": None if flow is None else len(flow.sent) + len(flow.releasing),
        "waiting": None if flow is None else _waiting(flow, ends),
    }


def _standing(subscription: Subscription, flow: Flow, ends: _Ends) -> Iterator[dict[str, Any]]:
    """A row for each broker where the subscription has a place; one without, where it has none."""
    places = {broker: place.next for (filter, broker), place in flow.places.items() if filter == subscription.filter}
    for broker, at in places.items() or [(None, None)]:
        owed = flow.owed.get((subscription.filter, broker or ""))
        yield {
            "filter": subscription.filter,
            "qos": subscription.qos,
            "broker": broker,
            "next": at,
            "end": None if broker is None else ends.of(subscription.filter, broker),
            "waiting": None if broker is None or at is None else ends.beyond(subscription.filter, broker, at),
            "history": None if owed is None else "retained" if owed.start is None else "being sent",
        }


class _Ends:
    """The ends of filters' light queues, requested once per broker and filter."""

    def __init__(self, routes: Routes, allow_incomplete: bool) -> None:
        brokers = to_list(routes.holders(), "what waits for sessions", allow_incomplete)
        self._addresses: Mapping[str, str] = {one.broker: one.address for one in brokers}
        self._routes = routes
        self._known: dict[tuple[str, str], int] = {}

    def learn(self, places: Iterable[tuple[str, str]]) -> None:
        """Asks for those of these filters and brokers that are not known yet."""
        wanted: dict[str, dict[str, None]] = {}
        for filter, broker in places:
            if broker in self._addresses and (filter, broker) not in self._known and not is_share(filter):
                wanted.setdefault(broker, {})[filter] = None
        for broker, filters in wanted.items():
            for filter, end in zip(filters, self._ask(broker, list(filters)), strict=True):
                if end is not None:
                    self._known[filter, broker] = end

    def _ask(self, broker: str, filters: list[str]) -> list[int | None]:
        queues = tuple([filter_queue(filter) for filter in filters])
        try:
            reply = self._routes.link(self._addresses[broker]).ask(QueryBounds(queues), BoundsReply)
        except QueueNotFound:  # one of them was closed: which?
            return [None] if len(filters) == 1 else [end for filter in filters for end in self._ask(broker, [filter])]
        return [bounds.end for bounds in reply.bounds]

    def of(self, filter: str, broker: str) -> int | None:
        """When it ends; ``None`` if that is unknown."""
        return self._known.get((filter, broker))

    def beyond(self, filter: str, broker: str, at: int) -> int | None:
        """The number of messages that come behind a place."""
        end = self.of(filter, broker)
        return None if end is None else max(0, end - at)
