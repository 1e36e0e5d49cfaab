"""Keeps the filters that sessions hold at this broker equal to what their home says: opens missing ones, closes
left-over ones.

A session's filters are open at every broker, in its name and without a lease, because any broker may store a matching
message. The session's home (``HOME_TOPIC``) has the truth. Gateways open and close filters as clients subscribe and
sessions end; this module repairs what they miss:

| case | repair |
|---|---|
| a broker joins, or was away | it opens all filters of sessions before its first message (``has_joined``) |
| a session ended while its gateway was dead | its filters are closed here |

The owner name of a filter contains its home's broker name. Only the home that gave a session can end it; a home that is
away ends none. The work per turn is bounded, with one request under way of each kind. Pure: ``broker/net/server.py``
drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.sessions.fold import holder, session_of
from broker.state import BrokerState
from penstock.protocol.link import Link, Links
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.request import Request, Result
from penstock.protocol.requests.routes import QueryRoute, Route
from penstock.protocol.requests.sessions import (
    HOME_TOPIC,
    EndedSessions,
    FindEndedSessions,
    ListSessionFilters,
    ReleaseExchanges,
    SessionFiltersPage,
)

TURN_S: Final = 2.0
ROUTE_S: Final = 10.0
RETRY_S: Final = 0.5
PATIENCE_S: Final = 1.0
PER_TURN: Final = 1000
LATE_S: Final = 60.0
"""The record that fences off a session's late messages is kept at least this long after the session's end."""


class _Home:
    """The home of some sessions, another broker. ``after``: how far its list has been read."""

    def __init__(self, name: str, address: str, link: Link) -> None:
        self.name = name
        self.address = address
        self.link = link
        self.after = 0
        self.due = 0.0
        self.is_listing = False
        self.is_mirrored = False


class SessionMirror:
    """One broker's dealings with the homes of sessions.

    Args:
        name: this broker's.
        names: links to the name servers.
        carry_out: has a request carried out by this broker itself.
    """

    def __init__(
        self, name: str, state: BrokerState, names: Sequence[Link], links: Links, carry_out: Callable[[Request], None]
    ) -> None:
        self._name = name
        self._state = state
        self._names = names
        self._links = links
        self._carry_out = carry_out
        self._homes: dict[str, _Home] = {}
        self._knows_route = not names
        self._asking: set[int] = set()
        self._asked_at = float("inf")
        self._route_due = 0.0
        self._owners: list[tuple[int, str, str]] = []  # generation, home and owner name, still to be looked at
        self._exchanges: list[tuple[str, int]] = []
        self._over: dict[tuple[str, int], None] = {}  # sessions with exchanges that were over at the last look
        self._again: dict[tuple[str, int], None] = {}
        self._looked_at = float("-inf")
        self._turn_due = 0.0
        self._finding = 0
        self._now = 0.0

    @property
    def has_joined(self) -> bool:
        """Whether everything that the homes had at some moment since the start is open here."""
        return self._knows_route and all([home.is_mirrored for home in self._homes.values()])

    def tick(self, now: float) -> None:
        """Does due work."""
        self._now = now
        if now >= self._route_due:
            self._ask_routes(now)
        for home in list(self._homes.values()):
            if now >= home.due and not home.is_listing:
                self._list(home)
        if now >= self._turn_due and not self._finding:
            self._turn_due = now + TURN_S
            self._look_for_what_is_over()

    # ------------------------------------------------------------ where the homes are

    def _ask_routes(self, now: float) -> None:
        """Asks every name server. Before the first answer that is tried for ``PATIENCE_S``: then none can be waited
        for. A known home counts as present until another one is known."""
        if not self._knows_route:
            self._asked_at = min(self._asked_at, now)
            self._knows_route = now >= self._asked_at + PATIENCE_S
        self._route_due = now + (ROUTE_S if self._knows_route else RETRY_S)
        for number, link in enumerate(self._names):
            if number not in self._asking:
                self._asking.add(number)
                self._ask(link, QueryRoute(HOME_TOPIC), partial(self._told_route, number))

    def _told_route(self, number: int, result: Result) -> None:
        self._asking.discard(number)
        if not isinstance(result, Route):
            self._knows_route = self._knows_route or not self._asking
            self._route_due = min(self._route_due, self._now + RETRY_S)
            return
        self._knows_route = True
        for route in result.brokers:
            home = self._homes.get(route.broker)
            if route.broker != self._name and (home is None or home.address != route.address):
                home = self._homes[route.broker] = _Home(route.broker, route.address, self._links.link(route.address))
                self._list(home)

    # ------------------------------------------------------------ opening missing filters

    def _list(self, home: _Home) -> None:
        home.is_listing = True
        self._ask(home.link, ListSessionFilters(home.after, PER_TURN), partial(self._listed, home))

    def _listed(self, home: _Home, result: Result) -> None:
        home.is_listing = False
        if not isinstance(result, SessionFiltersPage):
            home.after = 0
            home.due = self._now + (TURN_S if home.is_mirrored else RETRY_S)
            return
        held = self._state.filters
        for session in result.sessions:
            owner = holder(session.generation, home.name)
            missing = tuple([one for one in session.filters if not held.holds(owner, one)])
            if missing:
                self._carry_out(OpenFilters(owner, missing))
        home.after = result.after
        home.is_mirrored = home.is_mirrored or not result.after
        home.due = self._now + (TURN_S if home.is_mirrored else 0.0)
        if not home.is_mirrored:
            self._list(home)

    # ------------------------------------------------------------ closing left-over filters

    def _look_for_what_is_over(self) -> None:
        if not self._owners:
            self._owners = self._held_for_sessions()
        some, self._owners = self._owners[:PER_TURN], self._owners[PER_TURN:]
        by_home: dict[str, dict[int, str]] = {}
        for generation, home_name, owner in some:
            by_home.setdefault(home_name, {})[generation] = owner
        for home_name, owners in by_home.items():
            if home_name == self._name:
                self._close(owners, EndedSessions(tuple([one for one in owners if not self._stands(one)])))
            elif home_name in self._homes:
                self._find(self._homes[home_name], tuple(owners), partial(self._close, owners))
        self._look_for_exchanges()

    def _stands(self, generation: int) -> bool:
        return self._state.sessions.stands(generation)

    def _held_for_sessions(self) -> list[tuple[int, str, str]]:
        """Owners that are sessions. Without a home's name they are our own, or, from before the names were there, of
        the one home that there is."""
        own = self._name if self._state.topics.get(HOME_TOPIC) is not None else self._only_home()
        found = []
        for owner in self._state.filters.owners:
            session = session_of(owner)
            if session is not None:
                found.append((session[0], session[1] or own, owner))
        return found

    def _only_home(self) -> str:
        return next(iter(self._homes)) if len(self._homes) == 1 else ""

    def _find(self, home: _Home, generations: tuple[int, ...], on_found: Callable[[EndedSessions], None]) -> None:
        self._finding += 1

        def answered(result: Result) -> None:
            self._finding -= 1
            if isinstance(result, EndedSessions):
                on_found(result)

        self._ask(home.link, FindEndedSessions(generations), answered)

    def _close(self, owners: dict[int, str], ended: EndedSessions) -> None:
        for generation in ended.generations:
            filters = self._state.filters.held_by(owners.get(generation, ""))
            if filters:
                self._carry_out(CloseFilters(owners[generation], tuple(filters)))

    # ------------------------------------------------------------ exchanges of sessions that are over

    def _look_for_exchanges(self) -> None:
        """They bear no home's name: only where there is one home, another broker or this one, it is clear whom to
        ask."""
        home = self._homes.get(self._only_home())
        is_own = self._state.topics.get(HOME_TOPIC) is not None
        if bool(self._homes) if is_own else home is None:
            return
        if not self._exchanges and self._now >= self._looked_at + LATE_S:
            self._looked_at = self._now
            self._again, self._over = self._over, {}
            self._exchanges = self._state.exchanges.sessions()
        some, self._exchanges = self._exchanges[:PER_TURN], self._exchanges[PER_TURN:]
        generations = tuple(dict.fromkeys([generation for _, generation in some]))
        if home is not None and some:
            self._find(home, generations, partial(self._forget, some))
        elif some:
            self._forget(some, EndedSessions(tuple([one for one in generations if not self._stands(one)])))

    def _forget(self, some: Sequence[tuple[str, int]], ended: EndedSessions) -> None:
        over = set(ended.generations)
        for session in [one for one in some if one[1] in over]:
            if session in self._again:
                self._carry_out(ReleaseExchanges(*session, (), is_over=True))
            else:
                self._over[session] = None

    # ------------------------------------------------------------ links

    @staticmethod
    def _ask(link: Link, request: Request, on_result: Callable[[Result], None]) -> None:
        link.submit(request, on_result)
        link.flush()
