"""Twin of gateway/delivery/share_feed.py: a model-based machine over members with little room."""

from __future__ import annotations

from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from making import BROKER, arrival

from gateway.connections.device import Device
from gateway.delivery.share_feed import DONE, NO_ROOM, SENT, TOO_LARGE, Leased, ShareFeed
from gateway.messages.envelope import Arrival
from gateway.sessions.session import Cursor, Session
from gateway.sessions.subscriptions import Subscription

ROOM = 3
WHO = st.integers(0, 3)


class Line:
    """A device as far as room is concerned."""

    is_full = False


class Handing(RuleBasedStateMachine):
    """Messages come, members take, acknowledge, refuse for their size, leave and join; nothing is lost or doubled."""

    share = "$share/g/a"

    def __init__(self) -> None:
        super().__init__()
        self.feed = ShareFeed(BROKER, self.share)
        self.feed.is_open = True
        self.sessions = [Session(f"s{number}", ROOM) for number in range(4)]
        for session in self.sessions:
            session.device = cast(Device, Line())
        self.mine: dict[int, Session] = {}  # offset -> who has it
        self.keys: dict[int, int] = {}
        self.next = 0
        self.limits = [10] * 4

    def send(self, cursor: Cursor, one: Arrival) -> int:
        at = self.sessions.index(cursor.session)
        assert cursor.session in self.feed.members, "sent to somebody who is no member"
        if len([1 for session in self.mine.values() if session is cursor.session]) >= ROOM:
            return NO_ROOM
        if len(one.payload) > self.limits[at]:
            return TOO_LARGE
        if one.qos == 0:
            return DONE
        key = self.keys[one.offset]
        if self.feed.is_ordered:
            assert all(self.keys[offset] != key or who is cursor.session for offset, who in self.mine.items())
        self.mine[one.offset] = cursor.session
        return SENT

    @rule(sizes=st.lists(st.sampled_from([1, 1, 1, 9, 20]), min_size=1, max_size=5), key=st.integers(0, 2))
    def arrive(self, sizes: list[int], key: int) -> None:
        for size in sizes:
            self.keys[self.next] = key
            made = arrival(self.next, payload=b"x" * size, qos=int(size != 9))
            self.feed.arrive([Leased(made, key)])
            self.next += 1
        self.feed.deliver(self.send)

    @rule(at=WHO)
    def join(self, at: int) -> None:
        self.feed.join(self.sessions[at], Subscription("$share/g/a", 1))
        self.feed.deliver(self.send)

    @rule(at=WHO, limit=st.sampled_from([5, 10, 30]))
    def take_less(self, at: int, limit: int) -> None:
        self.limits[at] = limit

    @rule(at=WHO)
    def acknowledge(self, at: int) -> None:
        for offset in [offset for offset, who in self.mine.items() if who is self.sessions[at]][:1]:
            del self.mine[offset]
            self.feed.settle(offset)
            self.feed.settle(offset)
        self.feed.stir(self.sessions[at])
        self.feed.deliver(self.send)

    @rule(at=WHO)
    def lose(self, at: int) -> None:
        offsets = [offset for offset, who in self.mine.items() if who is self.sessions[at]]
        for offset in offsets:
            del self.mine[offset]
        self.feed.give_back(offsets)
        self.feed.leave(self.sessions[at])

    @rule(at=WHO)
    def unsubscribe(self, at: int) -> None:
        self.feed.leave(self.sessions[at])

    @rule(data=st.data())
    def be_leased_again(self, data: st.DataObject) -> None:
        feed = self.feed
        here = sorted(set(self.keys).difference(feed.returning))
        again = data.draw(st.lists(st.sampled_from(here), unique=True)) if here else []
        feed.arrive([Leased(arrival(offset, qos=1), self.keys[offset]) for offset in again])
        self.feed.deliver(self.send)

    @rule()
    def wait_too_long(self) -> None:
        self.feed.give_up_waiting()

    @rule()
    def be_answered(self) -> None:
        self.feed.returning, self.feed.to_return = self.feed.to_return, {}
        self.feed.settling, self.feed.to_settle = self.feed.to_settle, {}
        for offset in self.feed.returning:
            self.keys.pop(offset)
        for offset in self.feed.settling:
            self.keys.pop(offset)
        self.feed.returning, self.feed.settling = {}, {}

    @invariant()
    def every_message_is_in_exactly_one_place(self) -> None:
        feed = self.feed
        waiting = [one.arrival.offset for one in (*feed.waiting, *feed.aside)]
        held = [*feed.sent, *waiting, *feed.to_settle, *feed.settling, *feed.to_return, *feed.returning]
        assert sorted(held) == sorted(self.keys)
        assert set(self.feed.sent) == set(self.mine)

    @invariant()
    def only_members_are_free(self) -> None:
        assert set(self.feed.free) <= set(self.feed.members.values())
        if not self.feed.is_ordered and self.feed.waiting:
            assert not self.feed.free or len(self.feed.members) > 0


class OrderedHanding(Handing):
    """The same with keys."""

    share = "$oshare/g/a"


TestHanding = Handing.TestCase
TestHanding.settings = settings(max_examples=60, stateful_step_count=40)
TestOrderedHanding = OrderedHanding.TestCase
TestOrderedHanding.settings = TestHanding.settings


def test_what_is_on_its_way_back_and_is_leased_again_is_returned_again() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    feed.returning = {1: 0}
    feed.arrive([Leased(arrival(1), 0)])
    assert (feed.to_return, len(feed.waiting)) == ({1: 0}, 0)


def test_where_there_is_no_member_a_message_is_too_large_for_none() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    feed.arrive([Leased(arrival(1), 0)])
    assert feed.deliver(lambda cursor, one: SENT) == 0
    assert (feed.to_settle, len(feed.waiting)) == ({}, 1), "it would be gone for good"


def test_no_more_is_asked_for_than_members_have_room_for() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    small, large = Session("small", 2), Session("large", 1000)
    for session in (small, large):
        session.device = cast(Device, Line())
        feed.join(session, Subscription("$share/g/a", 1))
    assert feed.wanted(100) == 0
    feed.is_open = True
    assert (feed.wanted(100), feed.wanted(5)) == (34, 5)
    feed.is_taking = True
    assert feed.wanted(100) == 0


def test_all_that_is_held_is_told_and_forgotten_when_the_share_has_ended() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    feed.waiting.append(Leased(arrival(1), 0))
    feed.to_settle[2] = None
    feed.to_return[3] = 0
    assert feed.resume() == (1, 2)
    assert not feed.is_idle
    assert not feed.to_return
    feed.lost()
    assert feed.resume() == ()
    assert feed.is_idle


def test_what_comes_behind_messages_on_their_way_back_follows_them_even_if_the_answer_is_quicker_than_the_round() -> (
    None
):
    feed = ShareFeed(BROKER, "$oshare/g/a")
    feed.returning = {1: 7}
    feed.arrive([Leased(arrival(2), 7), Leased(arrival(3), 8)])
    feed.returning = {}
    sent: list[int] = []
    feed.join(Session("s", 9), Subscription("$oshare/g/a", 1))
    feed.deliver(lambda cursor, one: sent.append(one.offset) or SENT)  # type: ignore[func-returns-value]
    assert sent == [3]
    assert feed.to_return == {2: 7}


def ordered(*sessions: Session) -> ShareFeed:
    feed = ShareFeed(BROKER, "$oshare/g/a")
    for session in sessions:
        feed.join(session, Subscription("$oshare/g/a", 1))
    return feed


def test_what_waits_behind_a_message_of_its_key_that_is_given_back_goes_back_too() -> None:
    feed = ordered(Session("one", 9), Session("two", 9))
    feed.arrive([Leased(arrival(at), key) for at, key in ((1, 7), (2, 7), (3, 8), (4, 7))])
    outcomes = {1: SENT, 2: NO_ROOM, 3: SENT, 4: NO_ROOM}
    feed.deliver(lambda cursor, one: outcomes[one.offset])
    feed.give_back([1])
    assert feed.to_return == {1: 7, 2: 7, 4: 7}
    sent: list[int] = []
    feed.deliver(lambda cursor, one: sent.append(one.offset) or SENT)  # type: ignore[func-returns-value]
    assert sent == []


def test_what_is_too_large_for_who_has_its_key_holds_back_the_later_ones_of_the_key() -> None:
    feed = ordered(Session("one", 9), Session("two", 9))
    feed.arrive([Leased(arrival(at), key) for at, key in ((1, 7), (2, 7), (3, 7), (4, 8))])
    sent: list[int] = []

    def send(cursor: Cursor, one: Arrival) -> int:
        if one.offset == 2:
            return TOO_LARGE
        sent.append(one.offset)
        return SENT

    feed.deliver(send)
    assert sent == [1, 4]


def test_nothing_is_asked_for_a_member_whose_connection_takes_no_more() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    feed.is_open = True
    session = Session("s", 9)
    line = Line()
    line.is_full = True
    session.device = cast(Device, line)
    feed.join(session, Subscription("$share/g/a", 1))
    assert feed.wanted(100) == 0
    line.is_full = False
    feed.stir(session)
    assert feed.wanted(100) == 9


def test_a_message_that_nobody_will_acknowledge_goes_once_also_where_its_key_is_on_its_way() -> None:
    feed = ordered(Session("one", 9), Session("two", 9))
    feed.arrive([Leased(arrival(1), 7), Leased(arrival(2, qos=0), 7)])
    outcomes = {1: SENT, 2: DONE}
    feed.deliver(lambda cursor, one: outcomes[one.offset])
    assert (list(feed.sent), list(feed.to_settle), list(feed.waiting)) == ([1], [2], [])


def test_what_was_put_aside_goes_back_when_nobody_is_left_whom_it_could_wait_for() -> None:
    feed = ShareFeed(BROKER, "$share/g/a")
    small, large = Session("small", 9), Session("large", 9)
    for session in (small, large):
        feed.join(session, Subscription("$share/g/a", 1))
    feed.arrive([Leased(arrival(1), 0), Leased(arrival(2), 0)])
    outcomes = {"small": TOO_LARGE, "large": NO_ROOM}
    feed.deliver(lambda cursor, one: outcomes[cursor.session.client_id])
    feed.give_up_waiting()
    assert list(feed.to_return) == []
    for session in (small, large):
        feed.leave(session)
    feed.give_up_waiting()
    assert list(feed.to_return) == [1, 2]
