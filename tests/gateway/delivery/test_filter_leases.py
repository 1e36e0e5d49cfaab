"""Which light queues are held open, where, and for how long."""

from __future__ import annotations

import pytest
from linked_broker import LinkedBroker
from rig import HandClock

from gateway.brokers import Brokers
from gateway.delivery.filter_leases import (
    CLOSES_MAX,
    FILTER_BYTES_PER_REQUEST,
    FILTERS_PER_REQUEST,
    FilterLeases,
    portions,
)
from gateway.delivery.tracing import DeviceTrace
from gateway.sessions.lasting import Lasting
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription
from penstock.errors import InvalidRequest, PenstockError, Unavailable
from penstock.protocol.message import Message
from penstock.protocol.requests.filters import CloseFilters, KeepFilters, OpenFilters


class House:
    """Leases at a broker, and what they told."""

    def __init__(self) -> None:
        self.broker = LinkedBroker(HandClock())
        self.brokers = Brokers(self.broker, ["ns:1"], lambda: None)
        self.begun: list[tuple[str, int, int]] = []
        self.opened: list[bool] = []
        self.wakes = 0
        self.leases = FilterLeases(self.brokers, "gw", 60.0, self._begun, self._wake, DeviceTrace("gw").kept)
        self.brokers.refresh()
        self.brokers.flush()

    def _wake(self) -> None:
        self.wakes += 1

    def _begun(self, cursor: Cursor, offset: int, position: int) -> None:
        self.begun.append((cursor.subscription.filter, offset, position))
        cursor.next, cursor.start = offset, position

    def open(self, session: Session, *filters: str) -> None:
        for one in filters:
            subscription = session.subscriptions[one] = Subscription(one, 1)
            self.leases.open(session, subscription, lambda error, positions: self.opened.append(error is None))

    def flush(self) -> None:
        self.leases.flush()
        self.brokers.flush()


def test_a_cursor_is_told_the_offset_and_position_from_which_it_counts() -> None:
    house = House()
    house.open(Session("1", 1), "a")
    house.flush()
    [(filter, offset, position)] = house.begun
    assert (filter, offset) == ("a", house.broker.bounds("~filter:a").end)
    house.broker.produce(Message("a", b"x"))
    assert offset <= position < house.broker.messages()[0].position


def test_so_many_filters_that_a_request_would_be_too_long_are_several() -> None:
    house = House()
    house.open(Session("1", 1), *[f"f/{at}" for at in range(FILTERS_PER_REQUEST + 1)])
    house.flush()
    assert [len(request.filters) for request in house.broker.made(OpenFilters)] == [FILTERS_PER_REQUEST, 1]


def test_so_long_filters_that_a_request_would_be_too_large_are_several() -> None:
    filters = [f"{at}/" + "é" * 500 for at in range(1500)]
    cut = list(portions(filters))
    assert [first for first, _ in cut] == [0, *[end for _, end in cut[:-1]]]
    assert [one for first, end in cut for one in filters[first:end]] == filters
    sizes = [sum(len(one.encode()) for one in filters[first:end]) for first, end in cut]
    assert max(sizes) <= FILTER_BYTES_PER_REQUEST < sum(sizes[:2])
    assert list(portions(["x" * (FILTER_BYTES_PER_REQUEST + 1)] * 2)) == [(0, 1), (1, 2)]
    assert list(portions([])) == []


@pytest.mark.interpreted
def test_what_is_opened_in_a_sessions_name_is_several_requests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.delivery.filter_leases.FILTERS_PER_REQUEST", 2)
    house, session = House(), Session("1", 1)
    lasting = session.lasting = Lasting(7, "b")
    house.open(session, "a", "b", "c")
    house.flush()
    held = [one.filters for one in house.broker.made(OpenFilters) if one.owner == lasting.holder("b")]
    assert held == [("a", "b"), ("c",)]
    assert house.opened == [True] * 3


def test_a_filter_closed_and_opened_again_within_a_round_stays_open() -> None:
    house = House()
    first, second = Session("1", 1), Session("2", 1)
    house.open(first, "a")
    house.flush()
    house.leases.release(first.overlap.cursors[0])
    house.open(second, "a")
    house.flush()
    assert "a" in house.broker.filters()


def test_many_filters_close_a_part_at_a_time_and_one_that_is_wanted_again_meanwhile_stays_open() -> None:
    house = House()
    first, second = Session("1", 1), Session("2", 1)
    filters = [f"f/{at:04}" for at in range(2 * CLOSES_MAX + 1)]
    house.open(first, *filters)
    house.flush()
    for cursor in first.overlap.cursors:
        house.leases.release(cursor)
    house.wakes = 0
    house.flush()
    assert house.broker.made(CloseFilters) == [CloseFilters("gw", tuple(filters[:CLOSES_MAX]))]
    assert house.wakes == 1, "it goes on by itself"
    house.open(second, filters[-1])
    house.flush()
    house.flush()
    closed = [filter for request in house.broker.made(CloseFilters) for filter in request.filters]
    assert closed == filters[:-1]
    assert (len(house.leases), filters[-1] in house.broker.filters()) == (1, True)
    house.wakes = 0
    house.flush()
    assert house.wakes == 0


def test_what_is_opened_together_begins_behind_what_the_session_has_come_to() -> None:
    house = House()
    session = Session("1", 1)
    house.open(session, "old", "older")
    house.flush()
    for cursor, seen in zip(session.overlap.cursors, (7000, 5000), strict=True):
        cursor.seen = seen
    house.open(session, "a", "b", "c")
    assert [cursor.start for cursor in session.overlap.cursors[2:]] == [7001] * 3
    house.flush()
    session.overlap.cursors[0].seen = 8000
    house.open(session, "d")
    assert session.overlap.cursors[-1].start == 8001


def test_a_heartbeat_keeps_them_and_only_while_there_are_any() -> None:
    house = House()
    house.leases.tick(100.0)
    house.open(Session("1", 1), "a")
    house.flush()
    for now in (101.0, 119.0, 121.0, 139.0, 142.0):
        house.leases.tick(now)
    assert house.broker.made(KeepFilters) == [KeepFilters("gw", 60.0)] * 2


def test_what_stood_before_is_opened_again_until_it_stands() -> None:
    house = House()
    session = Session("1", 1)
    house.open(session, "a")
    house.flush()
    [cursor] = session.overlap.cursors
    cursor.next = -1
    house.broker.refuses[OpenFilters] = Unavailable("away")
    house.leases.open_again(cursor)
    house.flush()
    assert cursor.next == -1
    del house.broker.refuses[OpenFilters]
    house.leases.tick(1.0)
    house.flush()
    assert cursor.next == house.broker.bounds("~filter:a").end


def test_a_broker_that_appears_later_gets_all_filters() -> None:
    house = House()
    session = Session("1", 1)
    house.open(session, "a", "b")
    house.flush()
    other = with_another(house)
    house.flush()
    assert [request.filters for request in other.made(OpenFilters)] == [("a", "b")]
    assert [cursor.feed.broker.address for cursor in session.overlap.cursors] == ["broker:1"] * 2 + ["other:1"] * 2


def with_another(house: House) -> LinkedBroker:
    """The same house with one more broker."""
    return learned(house, LinkedBroker(house.broker.clock, "c", "other:1"))


def learned(house: House, other: LinkedBroker) -> LinkedBroker:
    other.joins(house.broker)
    house.brokers.refresh()
    house.brokers.flush()
    return other


def test_at_a_broker_that_appears_later_the_oldest_subscription_is_the_oldest_too() -> None:
    house = House()
    young, old = Session("1", 1), Session("2", 1)
    house.open(young, "b")
    house.open(old, "a", "b")
    house.flush()
    with_another(house)
    assert [cursor.subscription.filter for cursor in old.overlap.cursors] == ["a", "b"] * 2


def test_a_session_begins_where_the_filter_was_opened_in_its_name() -> None:
    house = House()
    session = Session("1", 1)
    session.lasting = Lasting(7, "b")
    house.open(session, "a")
    house.flush()
    other = LinkedBroker(house.broker.clock, "c", "other:1")
    position = other.rig.store.written
    other.ask(OpenFilters("~session/7@b", ("a",)))
    for number in range(3):
        other.produce(Message("a", str(number).encode(), mqtt_topic="a"))
    other.refuses[OpenFilters] = Unavailable("away")
    learned(house, other)
    house.flush()
    [_, cursor] = session.overlap.cursors
    assert cursor.next == -1
    other.refuses.clear()
    house.leases.tick(1.0)
    house.flush()
    assert (cursor.next, cursor.start, cursor.feed.queue) == (position, position, "~filter:a")
    house.begun.clear()
    house.leases.open_again(cursor)
    house.flush()
    assert [filter for filter, _, _ in house.begun] == ["a"]
    assert {owner: other.state.filters.held_by(owner) for owner in other.state.filters.owners} == {
        "~session/7@b": ["a"],
        "gw": ["a"],
    }


def at_home(house: House) -> dict[str, list[str]]:
    """What is open at the home of sessions, by owner."""
    held = house.broker.state.filters
    return {owner: held.held_by(owner) for owner in held.owners}


def without_home() -> tuple[House, Session]:
    """A house with another broker and a lasting session that has subscribed while its home had no address."""
    house, session = House(), Session("1", 1)
    with_another(house)
    session.lasting = Lasting(7, "b")
    house.brokers.known[0].address = ""
    house.broker.refuses[OpenFilters] = Unavailable("away")
    house.open(session, "a")
    house.flush()
    assert house.opened == [True]
    return house, session


def test_what_a_session_subscribes_to_while_its_home_is_away_is_open_there_in_its_name_afterwards() -> None:
    house, session = without_home()
    house.leases.tick(1.0)
    house.flush()
    assert at_home(house) == {}
    house.broker.refuses.clear()
    house.leases.tick(1.5)
    house.flush()
    assert at_home(house) == {"gw": ["a"], "~session/7": ["a"]}
    assert all([cursor.next >= 0 for cursor in session.overlap.cursors])
    assert asked(house.broker, house, 2.0, 2.5) == [0, 0]


def test_a_session_that_needs_a_filter_no_longer_has_it_opened_nowhere_later() -> None:
    house, session = without_home()
    assert session.lasting is not None
    for cursor in list(session.overlap.cursors):
        house.leases.release(cursor)
    assert house.leases.let_go(session.lasting, "a")
    house.broker.refuses.clear()
    house.leases.tick(1.0)
    house.flush()
    assert at_home(house) == {}


@pytest.mark.parametrize("is_open_for_gateway", [False, True])
def test_a_session_that_goes_on_without_its_own_hold_begins_where_the_filter_is_open_for_its_gateway(
    is_open_for_gateway: bool,
) -> None:
    house, session = without_home()
    assert session.lasting is not None
    house.broker.refuses.clear()
    house.broker.holds = (OpenFilters,)
    house.leases.tick(1.0)
    house.flush()
    if is_open_for_gateway:
        house.broker.let_first_go()
    house.broker.lose_kept_back(Unavailable("cut"))
    house.broker.flush()
    assert house.leases.let_go(session.lasting, "a")
    house.leases.close(session.lasting, ["a"])
    house.leases.begin_unheld(session, "a")
    house.flush()
    assert at_home(house) == {"gw": ["a"]}
    assert all([cursor.next >= 0 for cursor in session.overlap.cursors])
    assert asked(house.broker, house, 2.0, 2.5) == [0, 0]


def away(error: PenstockError) -> tuple[House, Lasting]:
    """A house with a session that let go of two filters while the broker answered with an error."""
    house, session = House(), Session("1", 1)
    lasting = session.lasting = Lasting(7, "b")
    house.open(session, "a", "b")
    house.flush()
    house.broker.refuses[CloseFilters] = error
    for filter in ("a", "b"):
        assert house.leases.let_go(lasting, filter)
        house.leases.close(lasting, [filter])
    house.flush()
    house.broker.requests.clear()
    return house, lasting


def ticked(house: House, *times: float) -> list[CloseFilters]:
    """What is asked to be closed at these ticks."""
    house.broker.requests.clear()
    for now in times:
        house.leases.tick(now)
        house.flush()
    return house.broker.made(CloseFilters)


@pytest.mark.interpreted
def test_what_sessions_let_go_of_is_asked_for_together_until_the_broker_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, lasting = away(Unavailable("away"))
    together = CloseFilters(lasting.holder("b"), ("a", "b"))
    assert ticked(house, 1.0, 1.5) == [together] * 2
    monkeypatch.setattr("gateway.delivery.filter_leases.FILTERS_PER_REQUEST", 1)
    house.broker.refuses.clear()
    assert [one.filters for one in ticked(house, 2.0)] == [("a",), ("b",)]
    assert ticked(house, 2.5) == []


def test_a_close_that_can_never_succeed_is_not_repeated() -> None:
    house, _ = away(InvalidRequest("no"))
    assert ticked(house, 1.0) == []


def test_what_a_session_had_that_is_over_is_said_once_and_together() -> None:
    house, session = House(), Session("1", 1)
    lasting = session.lasting = Lasting(7, "b")
    house.open(session, "a", "b")
    house.flush()
    house.broker.refuses[CloseFilters] = Unavailable("away")
    house.leases.forget(lasting)
    house.flush()
    assert house.broker.made(CloseFilters) == [CloseFilters(lasting.holder("b"), ("a", "b"))]
    assert lasting.held == {}
    house.broker.refuses.clear()
    assert ticked(house, 1.0, 1.5) == []


def test_a_session_that_is_over_before_its_filters_are_asked_for_opens_none_in_its_name() -> None:
    house, session = House(), Session("1", 1)
    lasting = session.lasting = Lasting(7, "b")
    house.open(session, "a")
    house.leases.forget(lasting)
    house.flush()
    assert [request.owner for request in house.broker.made(OpenFilters)] == ["gw"]
    assert house.opened == [True]


@pytest.mark.interpreted
def test_what_brokers_have_not_heard_is_remembered_up_to_a_limit_the_latest_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.delivery.filter_leases.UNHEARD_MAX", 3)
    house, sessions = House(), [Session(str(at), 1) for at in range(3)]
    for at, session in enumerate(sessions):
        session.lasting = Lasting(at, "b")
        house.open(session, "a", "b")
    house.flush()
    house.broker.refuses[CloseFilters] = Unavailable("away")
    for session in sessions:
        assert session.lasting is not None
        for filter in ("a", "b"):
            house.leases.let_go(session.lasting, filter)
            house.leases.close(session.lasting, [filter])
            house.flush()
    house.broker.refuses.clear()
    assert [ticked(house, now) for now in (1.0, 1.5, 2.0)] == [
        [CloseFilters("~session/1", ("b",))],
        [CloseFilters("~session/2", ("a", "b"))],
        [],
    ]


def asked(broker: LinkedBroker, house: House, *times: float) -> list[int]:
    """How many filters a broker is asked to open at each of these ticks."""
    counts = []
    for now in times:
        broker.requests.clear()
        house.leases.tick(now)
        house.flush()
        counts.append(sum(len(request.filters) for request in broker.made(OpenFilters)))
    return counts


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_broker_that_does_not_answer_is_asked_for_one_filter_at_a_time_and_for_all_when_it_is_back(
    is_lasting: bool,
) -> None:
    house, sessions = House(), [Session(str(at), 1) for at in range(20)]
    other = with_another(house)
    other.refuses[OpenFilters] = Unavailable("away")
    house.brokers.known[1].address = ""
    for at, session in enumerate(sessions):
        session.lasting = Lasting(at, "b") if is_lasting else None
        house.leases.resume(session, Subscription(f"f/{at}", 1))
    house.flush()
    each = 2 if is_lasting else 1  # for its session and for the gateway
    assert asked(other, house, 1.0, 1.5, 2.0) == [each] * 3
    other.refuses.clear()
    assert asked(other, house, 2.5, 3.0, 3.5) == [each, 19 * each, 0]
    assert all([cursor.next >= 0 for session in sessions for cursor in session.overlap.cursors])


def test_nothing_is_kept_for_those_who_left_while_a_broker_was_away() -> None:
    house, sessions = House(), [Session(str(at), 1) for at in range(20)]
    other = with_another(house)
    other.refuses[OpenFilters] = Unavailable("away")
    for at, session in enumerate(sessions):
        session.lasting = Lasting(at, "b") if at % 2 else None
        house.leases.resume(session, Subscription(f"f/{at}", 1))
    house.flush()
    for session in sessions:
        for cursor in session.overlap.cursors:
            house.leases.release(cursor)
    house.flush()
    assert asked(other, house, 1.0, 1.5) == [0, 0]
    [_, shelf] = house.leases._shelves.values()
    assert (shelf.feeds, shelf.failed, shelf.not_held, shelf.unheard) == ({}, {}, {}, {})
