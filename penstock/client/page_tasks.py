"""Administration of lists that may be long, a page at a time: topics, groups, MQTT sessions and filters, delayed
messages; and the figures of brokers. Pure; tasks as in ``administration.py``.

A page of several brokers has the first rows of each. It ends at the last row of the broker whose answer was cut first.
``after`` is where the next page begins; on the last page it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgpack

from penstock.client.administration import ALL_BROKERS, Ask, DelayedMessage, Task
from penstock.client.group_tasks import GroupState, states_of
from penstock.client.session_tasks import ANSWER_S, home_of_sessions
from penstock.client.topic_tasks import TopicAt, topic_at
from penstock.errors import Damaged, QueueNotFound, SessionNotFound, TopicNotFound
from penstock.protocol.requests.filters import FilterLevel, FilterLevels, ListFilters
from penstock.protocol.requests.groups import GroupRow, GroupsPage, ListGroups
from penstock.protocol.requests.messages import BoundsReply, QueryBounds
from penstock.protocol.requests.routes import BrokerRoute
from penstock.protocol.requests.servers import BrokerFigures, ReadFigures
from penstock.protocol.requests.sessions import (
    CONNECTED,
    NEVER_ENDS,
    UNREADABLE_HINT,
    AskSubscriptions,
    ListSessions,
    SessionRow,
    SessionsPage,
    SessionTerms,
    Subscriptions,
    saved_places,
)
from penstock.protocol.requests.timers import ListTimers, TimersPage
from penstock.protocol.requests.topics import CountTopics, DescribeTopic, TopicCount, TopicCounts, TopicDetail
from penstock.values import value
from topicmap.names import is_share
from topicmap.queues import filter_queue, readable

LOOKS_MAX: Final = 10
"""Maximum number of requests of one search of sessions; then it returns the found ones."""
K = TypeVar("K", str, tuple[int, int])


@value
class TopicRow:
    """A topic of all brokers.

    Attributes:
        topic, name: its name, and the first level of the MQTT names that it stores.
        at: how it is at each broker that has it.
        stored: how many messages were ever stored; it grows by one with each.
        messages: how many there are now.
        size: about how many bytes these have.
    """

    topic: str
    name: str
    at: tuple[TopicAt, ...]
    stored: int
    messages: int
    size: int = 0


@value
class TopicsPage:
    """A page of topics. ``after``: the last name where more follow, else empty."""

    rows: tuple[TopicRow, ...]
    after: str


@value
class GroupsOnPage:
    """A page of groups. ``after``: the last name where more follow, else empty."""

    rows: tuple[GroupState, ...]
    after: str


@value
class SessionState:
    """An MQTT session.

    Attributes:
        client, user: its client id, and as whom it has logged in; no user: it is anonymous.
        connected: whether its client is.
        gateway: where its client is or was connected.
        gone_ms: since when its client is away, in milliseconds since 1970; 0: it is connected.
        expiry_s: seconds after which it ends while its client is away.
        waiting: messages that its QoS 1 and 2 subscriptions have not been sent; -1: unknown.
        address, protocol, connected_s: of a connected client, as far as its gateway answered.
        subscriptions: their number; -1: unknown.
    """

    client: str
    user: str
    connected: bool
    gateway: str
    gone_ms: int
    expiry_s: int
    waiting: int
    address: str = ""
    protocol: str = ""
    connected_s: float = 0.0
    subscriptions: int = -1

    @property
    def never_ends(self) -> bool:
        """Whether it stays however long its client is away."""
        return self.expiry_s == NEVER_ENDS


@value
class SessionsOnPage:
    """A page of sessions. ``after`` continues; 0 at the end."""

    rows: tuple[SessionState, ...]
    after: int


@value
class SubscriptionState:
    """A subscription of an MQTT session: its filter, QoS, and the messages that wait for it (-1: unknown)."""

    filter: str
    qos: int
    waiting: int


@value
class DelayedPage:
    """A page of delayed messages. ``after``: due time and id that continue; ``(0, 0)`` at the end. ``count``: of all
    delayed messages."""

    rows: tuple[DelayedMessage, ...]
    after: tuple[int, int]
    count: int


# ------------------------------------------------------------ topics, groups, figures


def topics_page(after: str = "", count: int = 50, contains: str = "") -> Task[TopicsPage]:
    """The topics behind a name, with a text in their names if one is given."""
    counts: dict[str, list[tuple[BrokerRoute, TopicCount]]] = {}
    ends: list[str] = []
    for route in (yield ALL_BROKERS):
        page: TopicCounts = yield Ask(route.address, CountTopics(after, count, contains, True), TopicCounts)
        ends += [page.after] if page.after else []
        for row in page.topics:
            counts.setdefault(row.topic, []).append((route, row))
    names = [name for name in sorted(counts) if is_within(name, ends)]
    rows = []
    for name in names[:count]:
        at: list[TopicAt] = []
        for route, _ in counts[name]:
            try:
                detail: TopicDetail = yield Ask(route.address, DescribeTopic(name), TopicDetail)
            except TopicNotFound:  # deleted meanwhile
                continue
            at.append(topic_at(route.broker, detail))
        told = [one for _, one in counts[name]]
        sums = [sum(values) for values in zip(*[(one.stored, one.messages, one.size) for one in told], strict=True)]
        rows.append(TopicRow(name, readable(name), tuple(at), *sums))
    continues = bool(ends) or len(names) > count
    return TopicsPage(tuple(rows), rows[-1].topic if continues and rows else "")


def groups_page(after: str = "", count: int = 50, contains: str = "") -> Task[GroupsOnPage]:
    """The groups behind a name, with a text in their names if one is given."""
    found: list[GroupRow] = []
    ends: list[str] = []
    for route in (yield ALL_BROKERS):
        page: GroupsPage = yield Ask(route.address, ListGroups(after, count, contains), GroupsPage)
        found += page.groups
        ends += [page.after] if page.after else []
    rows = states_of([one for one in found if is_within(one.group, ends)])
    continues = bool(ends) or len(rows) > count
    return GroupsOnPage(tuple(rows[:count]), rows[:count][-1].group if continues and rows else "")


def is_within(key: K, ends: Sequence[K]) -> bool:
    """Whether the rows of all brokers are known up to this key. ``ends``: the last keys of pages that continue."""
    return all(key <= end for end in ends)


def figures() -> Task[dict[str, Mapping[str, float]]]:
    """Counters and gauges of each live broker, by its name (docs/guide/metrics.md)."""
    found: dict[str, Mapping[str, float]] = {}
    for route in (yield ALL_BROKERS):
        reply: BrokerFigures = yield Ask(route.address, ReadFigures(), BrokerFigures)
        found[route.broker] = dict(zip(reply.names, reply.values, strict=True))
    return found


# ------------------------------------------------------------ MQTT


def sessions_page(after: int = 0, count: int = 50, contains: str = "") -> Task[SessionsOnPage]:
    """MQTT sessions, the oldest first, with a text in their client ids if one is given. A search ends early, with fewer
    rows, where there are very many. Raises ``NoRoute`` where no broker keeps sessions."""
    home = yield from home_of_sessions()
    found: list[SessionRow] = []
    for _ in range(LOOKS_MAX):
        wanted = ListSessions(after, count - len(found), contains=contains)
        page: SessionsPage = yield Ask(home.address, wanted, SessionsPage)
        found += page.sessions
        after = page.after
        if not after or len(found) >= count:
            break
    terms = yield from _told(home, found, wants_terms=False)
    ends = yield from _ends(found)
    return SessionsOnPage(tuple([_session(one, terms.get(one.client), ends) for one in found]), after)


def session(client: str) -> Task[tuple[SessionState, list[SubscriptionState]]]:
    """An MQTT session and its subscriptions. Raises ``SessionNotFound``, and ``NoRoute`` where no broker keeps
    sessions."""
    home = yield from home_of_sessions()
    page: SessionsPage = yield Ask(home.address, ListSessions(client=client), SessionsPage)
    if not page.sessions:
        raise SessionNotFound(f"there is no session of {client}", hint="`penstock session list` shows all")
    row = page.sessions[0]
    told = (yield from _told(home, [row], wants_terms=True)).get(client)
    ends = yield from _ends([row])
    terms = told.terms if told is not None and told.with_terms else row.terms
    places = _places(row) or []
    subscriptions = []
    for filter, qos in _saved_terms(terms):
        waiting = _waiting([place for place in places if place[0] == filter], ends)
        subscriptions.append(SubscriptionState(filter, qos, waiting))
    return _session(row, told, ends), subscriptions


def filter_levels(parent: str | None = None, skip: int = 0, count: int = 200) -> Task[FilterLevels]:
    """The levels of the open MQTT filters of all brokers below ``parent`` (None: the first ones)."""
    found: dict[str, tuple[int, int]] = {}
    for route in (yield ALL_BROKERS):
        wanted = ListFilters(parent or "", parent is None, 0, skip + count)
        page: FilterLevels = yield Ask(route.address, wanted, FilterLevels)
        total = page.count
        for level, filters, holders in page.levels:  # each broker has all of those that count
            known = found.get(level, (0, 0))
            found[level] = max(known[0], filters), max(known[1], holders)
    names = sorted(found)
    rows = [FilterLevel(name, *found[name]) for name in names[skip : skip + count]]
    return FilterLevels(tuple(rows), max(total, len(names)))


def _session(row: SessionRow, told: SessionTerms | None, ends: Mapping[tuple[str, str], int]) -> SessionState:
    places = _places(row)
    waiting = -1 if places is None else _waiting(places, ends)
    about = (row.client, row.user, row.state == CONNECTED, row.owner, row.gone_ms, row.expiry_s, waiting)
    if told is not None:
        return SessionState(*about, told.address, told.protocol, told.connected_s, told.filters)
    try:
        return SessionState(*about, subscriptions=len(_saved_terms(row.terms)) if row.terms else -1)
    except Damaged:
        return SessionState(*about)


def _waiting(places: Sequence[tuple[str, str, int]], ends: Mapping[tuple[str, str], int]) -> int:
    return sum([max(0, ends.get((filter, broker), at) - at) for filter, broker, at in places])


def _places(row: SessionRow) -> list[tuple[str, str, int]] | None:
    try:
        return saved_places(row.flow)
    except Damaged:
        return None


def _saved_terms(terms: bytes) -> list[tuple[str, int]]:
    """Filter and QoS of each subscription in the bytes of a session's terms (docs/formats/mqtt.md). Raises
    ``Damaged``."""
    if not terms:
        return []
    try:
        return [(str(filter), int(qos)) for filter, qos, *_ in msgpack.unpackb(terms)]
    except (ValueError, TypeError, msgpack.UnpackException):
        raise Damaged("the saved state of a session cannot be read", hint=UNREADABLE_HINT) from None


def _told(home: BrokerRoute, rows: Sequence[SessionRow], *, wants_terms: bool) -> Task[dict[str, SessionTerms]]:
    """The terms of connected sessions, as their gateways have them."""
    clients = tuple([one.client for one in rows if one.state == CONNECTED and one.owner])
    if not clients:
        return {}
    asked = AskSubscriptions(clients, wants_terms, ANSWER_S)
    told: Subscriptions = yield Ask(home.address, asked, Subscriptions)
    return {one.client: one for one in told.told}


def _ends(rows: Sequence[SessionRow]) -> Task[dict[tuple[str, str], int]]:
    """The ends of the queues that sessions read, by filter and broker."""
    wanted: dict[str, dict[str, None]] = {}
    for row in rows:
        for filter, broker, _ in _places(row) or []:
            if not is_share(filter):
                wanted.setdefault(broker, {})[filter] = None
    found: dict[tuple[str, str], int] = {}
    routes: Sequence[BrokerRoute] = (yield ALL_BROKERS) if wanted else ()
    for route in routes:
        filters = list(wanted.get(route.broker, {}))
        ends = yield from _ends_at(route, filters)
        found |= {(filter, route.broker): end for filter, end in ends.items()}
    return found


def _ends_at(route: BrokerRoute, filters: list[str]) -> Task[dict[str, int]]:
    if not filters:
        return {}
    try:
        queues = tuple([filter_queue(filter) for filter in filters])
        reply: BoundsReply = yield Ask(route.address, QueryBounds(queues), BoundsReply)
    except QueueNotFound:  # one of them was closed: which?
        if len(filters) == 1:
            return {}
        middle = len(filters) // 2
        first = yield from _ends_at(route, filters[:middle])
        return first | (yield from _ends_at(route, filters[middle:]))
    return {filter: bounds.end for filter, bounds in zip(filters, reply.bounds, strict=True)}


# ------------------------------------------------------------ delayed messages


def delayed_page(after: tuple[int, int] = (0, 0), count: int = 50) -> Task[DelayedPage]:
    """The delayed messages behind a due time and an id, in the order in which they are due."""
    found: list[DelayedMessage] = []
    total, ends = 0, list[tuple[int, int]]()
    for route in (yield ALL_BROKERS):
        page: TimersPage = yield Ask(route.address, ListTimers(*after, count), TimersPage)
        total += page.count
        ends += [(page.after_ms, page.after_id)] if (page.after_ms, page.after_id) != (0, 0) else []
        found += [
            DelayedMessage(route.broker, one.id, one.due_ms, one.topic, one.key, one.size, one.damaged)
            for one in page.timers
        ]
    found = [one for one in found if is_within((one.due_ms, one.id), ends)]
    found.sort(key=lambda one: (one.due_ms, one.id, one.broker))
    rows = found[:count]
    rows += [one for one in found[count:] if (one.due_ms, one.id) == (rows[-1].due_ms, rows[-1].id)]
    goes_on = rows and (ends or len(found) > len(rows))
    return DelayedPage(tuple(rows), (rows[-1].due_ms, rows[-1].id) if goes_on else (0, 0), total)
