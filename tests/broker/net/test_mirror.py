"""What a broker has open for sessions is what their home has: at the start, later, and when they are over."""

from __future__ import annotations

from typing import Any

import pytest

import broker.net.mirror
from broker.net.mirror import LATE_S, PATIENCE_S, TURN_S, SessionMirror
from penstock.errors import Unavailable
from penstock.protocol.link import Link, OnResult
from penstock.protocol.message import CLIENT_ID, FLAG_ONCE, MQTT_ID, encode_properties, record_tail
from penstock.protocol.requests.filters import CloseFilters, OpenFilters
from penstock.protocol.requests.given import GivenRuns
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import BrokerRoute, QueryRoute, Route
from penstock.protocol.requests.sessions import (
    HOME_TOPIC,
    EndSession,
    FetchExchanges,
    FindEndedSessions,
    ListSessionFilters,
    OpenedSession,
    OpenSession,
)
from penstock.protocol.requests.topics import CreateTopic
from penstock.protocol.runs import Run
from tests.broker.broker_rig import Rig


class Way:
    """A link that answers at once, or not at all."""

    def __init__(self, house: House, address: str) -> None:
        self._house = house
        self._address = address

    def submit(self, request: Request, on_result: OnResult) -> None:
        house = self._house
        house.asked.append((self._address, request))
        if self._address in house.silent:
            return
        if self._address in house.away:
            on_result(Unavailable("away"))
        elif isinstance(request, QueryRoute):
            on_result(Route(tuple(house.routes)))
        else:
            on_result(house.rigs[self._address].ask(request))

    def flush(self) -> None:
        pass


class House:
    """A home of sessions, another broker with its mirror, and a name server."""

    def __init__(self, names: tuple[str, ...] = ("ns:1",), **settings: object) -> None:
        self.home, self.other = Rig(name="home"), Rig(name="other", **settings)
        self.rigs = {"home:1": self.home, "other:1": self.other}
        self.routes = [BrokerRoute("home", "home:1", 1)]
        self.away: set[str] = set()
        self.silent: set[str] = set()
        self.asked: list[tuple[str, Request]] = []
        self.home.ask(CreateTopic(HOME_TOPIC, 1))
        carry_out = lambda request: self.other.ask(request)  # noqa: E731
        self.mirror = SessionMirror("other", self.other.state, [Way(self, one) for one in names], self, carry_out)
        self.now = 0.0

    def link(self, address: str) -> Link:
        return Way(self, address)

    def session(self, client: str, *filters: str, at: Rig | None = None) -> int:
        """A session with these filters at its home, or at another broker."""
        opened = self.home.ask(OpenSession("gw", client, False, 100, b""))
        assert isinstance(opened, OpenedSession)
        if filters:
            self.home.ask(OpenFilters(f"~session/{opened.generation}", filters))
        return opened.generation

    def end(self, client: str) -> None:
        entry = self.home.state.sessions.get(client)
        assert entry is not None
        self.home.ask(EndSession(client, entry.epoch))

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.mirror.tick(self.now)
            self.now += 0.5
        self.mirror.tick(self.now)

    def held(self) -> dict[str, list[str]]:
        return {owner: self.other.state.filters.held_by(owner) for owner in self.other.state.filters.owners}


def tail(client: str, generation: int) -> bytes:
    """That of a QoS 2 message of a session."""
    return record_tail(b"a", encode_properties({CLIENT_ID: client, MQTT_ID: f"{generation}:{generation}:1"}))


def test_what_sessions_hold_at_home_is_open_before_the_broker_has_joined() -> None:
    house = House()
    first, second = house.session("a", "t/+", "u"), house.session("b", "$share/g/u")
    house.session("c")
    assert not house.mirror.has_joined
    house.mirror.tick(0.0)
    assert house.mirror.has_joined
    assert house.held() == {
        f"~session/{first}@home": ["t/+", "u"],
        f"~session/{second}@home": ["$share/g/u"],
        "~$share/g/u": ["u"],
    }


def test_a_filter_for_which_a_broker_has_no_room_takes_no_other_of_its_session_with_it() -> None:
    house = House(filters_max=2)
    session = house.session("a", "t/+", "u", "v")
    house.mirror.tick(0.0)
    assert house.held() == {f"~session/{session}@home": ["t/+", "u"]}


def test_many_sessions_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.net.mirror, "PER_TURN", 2)
    house = House()
    for number in range(7):
        house.session(f"c{number}", f"t/{number}")
    house.mirror.tick(0.0)
    assert house.mirror.has_joined
    assert len(house.held()) == 7
    assert len([1 for _, one in house.asked if isinstance(one, ListSessionFilters)]) == 4


def test_what_comes_later_is_opened_and_nothing_is_opened_twice() -> None:
    house = House()
    house.session("a", "t")
    house.mirror.tick(0.0)
    written = house.other.store.written
    house.pass_time(2 * TURN_S)
    assert house.other.store.written == written
    later = house.session("b", "u")
    house.pass_time(2 * TURN_S)
    assert house.held()[f"~session/{later}@home"] == ["u"]


def test_filters_of_a_session_that_is_over_are_closed_and_others_stay() -> None:
    house = House()
    ended, lives = house.session("a", "t"), house.session("b", "t")
    house.mirror.tick(0.0)
    house.end("a")
    house.pass_time(2 * TURN_S)
    assert house.held() == {f"~session/{lives}@home": ["t"]}
    house.other.ask(OpenFilters(f"~session/{ended}@home", ("t",)))  # a late word of its gateway
    house.pass_time(2 * TURN_S)
    assert house.held() == {f"~session/{lives}@home": ["t"]}


def test_a_home_that_does_not_answer_or_is_another_one_says_nothing() -> None:
    house = House()
    house.mirror.tick(0.0)
    house.other.ask(OpenFilters("~session/5@elsewhere", ("t",)))
    house.other.ask(OpenFilters("~session/7@home", ("t",)))
    house.away.add("home:1")
    house.pass_time(5 * TURN_S)
    assert set(house.held()) == {"~session/5@elsewhere", "~session/7@home"}
    house.away.clear()
    house.pass_time(5 * TURN_S)
    assert set(house.held()) == {"~session/5@elsewhere"}
    asked = {one for _, request in house.asked if isinstance(request, FindEndedSessions) for one in request.generations}
    assert asked == {7}


def test_filters_from_before_homes_had_names_are_of_the_only_home() -> None:
    house = House()
    lives = house.session("a", "t")
    house.other.ask(OpenFilters(f"~session/{lives}", ("t",)))
    house.other.ask(OpenFilters("~session/3", ("t",)))
    house.pass_time(2 * TURN_S)
    assert set(house.held()) == {f"~session/{lives}", f"~session/{lives}@home"}


def test_the_home_itself_closes_what_a_late_word_has_opened() -> None:
    house = House()
    own = SessionMirror("home", house.home.state, [], house, lambda request: house.home.ask(request))
    lives, ended = house.session("a", "t"), house.session("b")
    house.end("b")
    house.home.ask(OpenFilters(f"~session/{ended}", ("t",)))
    assert own.has_joined
    own.tick(0.0)
    assert house.home.state.filters.owners == [f"~session/{lives}"]


def test_open_exchanges_of_a_session_that_is_over_are_forgotten_after_a_while() -> None:
    house = House()
    lives, ended = house.session("a"), house.session("b")
    house.other.ask(FetchExchanges("a", lives, lives))
    house.other.ask(FetchExchanges("b", ended, ended + 5))
    house.end("b")
    house.pass_time(LATE_S - 1)
    assert house.other.state.is_fenced("b", ended, ended), "what is late is still refused"
    house.pass_time(LATE_S)
    assert house.other.state.exchanges.sessions() == [("a", lives)]


@pytest.mark.parametrize("is_alone", [True, False])
def test_the_home_itself_forgets_late_exchanges_while_no_other_broker_is_one(is_alone: bool) -> None:
    house = House()
    house.routes = [BrokerRoute(name, f"{name}:1", 1) for name in (["home"] if is_alone else ["home", "other"])]
    house.other.ask(CreateTopic(HOME_TOPIC, 1))
    own = SessionMirror("home", house.home.state, [Way(house, "ns:1")], house, lambda request: house.home.ask(request))
    lives, ended = house.session("a"), house.session("b")
    house.end("b")
    for client, generation in (("a", lives), ("b", ended)):  # the second has come behind its session's end
        house.home.ask(GivenRuns(1, [Run(tail(client, generation), 2 | FLAG_ONCE, 0, [b"x"])]))
    assert len(house.home.state.exchanges) == 2
    for seconds in range(int(2 * LATE_S) + 5):
        own.tick(float(seconds))
    left = [("a", lives)] if is_alone else [("a", lives), ("b", ended)]
    assert house.home.state.exchanges.sessions() == left
    assert house.home.restarted().state.exchanges.sessions() == left


@pytest.mark.parametrize("names", [(), ("ns:1",), ("ns:1", "ns:2")])
def test_nobody_waits_for_name_servers_that_cannot_be_reached(names: tuple[str, ...]) -> None:
    house = House(names)
    house.away.update(names)
    house.mirror.tick(0.0)
    assert house.mirror.has_joined


def test_one_that_says_nothing_holds_up_nobody_for_long_and_its_neighbour_is_believed() -> None:
    house = House(("ns:1", "ns:2"))
    house.silent.add("ns:1")
    house.mirror.tick(0.0)
    assert house.mirror.has_joined
    house = House()
    house.silent.add("ns:1")
    house.mirror.tick(0.0)
    assert not house.mirror.has_joined
    house.mirror.tick(PATIENCE_S)
    assert house.mirror.has_joined


def test_a_home_that_moved_is_asked_where_it_is_now() -> None:
    house = House()
    house.away.add("home:1")
    house.mirror.tick(0.0)
    assert not house.mirror.has_joined
    house.rigs["home:2"] = house.home
    house.routes = [BrokerRoute("home", "home:2", 1)]
    house.pass_time(11)
    assert house.mirror.has_joined


def test_a_session_reads_on_from_where_the_mirror_opened_its_filter() -> None:
    house = House()
    one = house.session("a", "t")
    house.other.ask(OpenFilters("gw", ("t",)))
    house.mirror.tick(0.0)
    begun = house.other.state.filters.begun(f"~session/{one}@home", "t")
    again: Any = house.other.ask(OpenFilters(f"~session/{one}@home", ("t",)))
    assert again.opened[0].position == begun > 0
    house.other.ask(CloseFilters(f"~session/{one}@home", ("t",)))
    assert house.other.state.filters.begun(f"~session/{one}@home", "t") == 0
