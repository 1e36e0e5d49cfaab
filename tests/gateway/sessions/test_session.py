"""Overlapping subscriptions and who delivers; and open exchanges both ways."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from making import a_broker, arrival, made, pulled, subscribed

from gateway.delivery.resending import come_back, next_again, pubrels_of, sent_again
from gateway.messages.envelope import Origin
from gateway.messages.outgoing import LIGHT_BYTES, PacketRun, Variant, blob
from gateway.sessions.lasting import Client, Lasting
from gateway.sessions.session import Cursor, Session
from gateway.sessions.session_state import Owed, Sent

FILTERS = ["a/b", "a/+", "+/b", "a/#", "#", "c/d"]


class Reader:
    """A client, as far as its session looks."""

    is_full = False


def packet_ids(packets: list[bytes], at: int = 7) -> list[int]:
    return [int.from_bytes(packet[at : at + 2], "big") for packet in packets]  # after the five bytes of the name a/b


def resent(session: Session, bytes_max: int = 1 << 20) -> list[bytes]:
    """What goes first when the client is back and takes packets of this size."""
    come_back(session, bytes_max)
    return more_again(session) + pubrels_of(session)


def more_again(session: Session, bytes_max: int = 1 << 20) -> list[bytes]:
    """What is to go again and has room now, up to so many bytes."""
    ids = next_again(session, bytes_max)
    return sent_again(session, {packet_id: session.in_flight[packet_id].blob(packet_id) for packet_id in ids}, 0)


@pytest.mark.mqtt("4.9.0-2")
def test_nothing_beyond_the_window_is_sent() -> None:
    session = Session("c", window=2)
    assert session.send(made()) is not None
    assert session.send(made()) is not None
    assert session.send(made()) is None
    assert session.send(made(qos=0)) is not None
    session.acknowledged(1)
    assert session.send(made()) is not None


@pytest.mark.mqtt("2.2.1-4", "4.3.2-1", old=("2.3.1-4",))
def test_an_id_is_not_used_again_while_its_exchange_is_open() -> None:
    session = Session("c", window=10)
    session.next_id = 65_535
    session.in_flight[1] = made()
    session.releasing = {2: None}
    sent = [session.send(made()) for _ in range(2)]
    assert packet_ids([packet for packet in sent if packet]) == [65_535, 3]


@pytest.mark.mqtt("4.3.3-6", old=("4.3.3-1",))
def test_after_pubrec_only_the_pubrel_is_sent_again() -> None:
    session = Session("c", window=10)
    session.send(made(qos=2))
    session.send(made(qos=1))
    assert session.received(1, refused=False)
    again = resent(session)
    assert again[0][0] == 0x3A  # QoS 1 with DUP
    assert again[1] == b"\x62\x02\x00\x01"
    assert session.completed(1)
    assert not session.completed(1)


@pytest.mark.mqtt("4.3.3-4")
def test_a_refusing_pubrec_ends_the_exchange() -> None:
    session = Session("c", window=1)
    session.send(made(qos=2))
    assert session.received(1, refused=True)
    assert session.room() == 1


@pytest.mark.mqtt("4.4.0-1", old=("4.4.0-1", "4.6.0-1"))
def test_a_resend_keeps_order_and_ids() -> None:
    session = Session("c", window=10)
    sent = [session.send(made(offset)) for offset in range(5)]
    session.acknowledged(2)
    again = resent(session)
    assert packet_ids(again) == [1, 3, 4, 5]
    assert [packet[1:] for packet in again] == [packet[1:] for at, packet in enumerate(sent) if packet and at != 1]


@pytest.mark.mqtt("3.1.2-25")
def test_what_is_larger_than_the_client_takes_by_now_is_as_if_it_had_been_sent() -> None:
    session = Session("c", window=10)
    session.send(made(qos=1))
    session.send(made(qos=2))
    session.send(made(qos=1))
    assert come_back(session, made().size - 1) == 3
    assert more_again(session) == []
    assert pubrels_of(session) == [b"\x62\x02\x00\x02"]
    assert (session.in_flight, session.in_flight_bytes, session.room()) == ({}, 0, 9)


def test_a_run_enters_all_its_ids() -> None:
    session = Session("c", window=10)
    run = PacketRun(pulled(*[arrival(at) for at in range(3)]), False, 1, False, 0)
    assert session.send_run(run) == run.data
    assert list(session.in_flight) == [1, 2, 3]


@given(st.lists(st.integers(1, 2), max_size=6), st.data())
def test_acknowledgements_that_come_together_do_what_they_do_one_by_one(kinds: list[int], data: st.DataObject) -> None:
    alone, together = Session("c", window=10), Session("c", window=10)
    for at, qos in enumerate(kinds):
        assert alone.send(made(at, qos)) == together.send(made(at, qos))
    every = list(range(1, len(kinds) + 1))
    ids = data.draw(st.just(every) | st.permutations(every) | st.lists(st.integers(1, 7)))
    for packet_id in ids:
        alone.acknowledged(packet_id)
    together.acknowledged_all(ids)
    assert list(together.in_flight) == list(alone.in_flight)
    assert together.in_flight_bytes == alone.in_flight_bytes


def test_a_run_that_does_not_fit_or_collides_is_not_sent() -> None:
    run = PacketRun(pulled(*[arrival(at) for at in range(3)]), False, 1, False, 0)
    assert Session("c", window=2).send_run(run) is None
    session = Session("c", window=10)
    session.in_flight[2] = made()
    assert session.send_run(run) is None
    session = Session("c", window=10)
    session.releasing = {2: None}
    assert session.send_run(run) is None
    assert session.in_flight == {}


def test_the_largest_id_is_followed_by_the_first_also_where_it_is_in_use() -> None:
    session = Session("c", window=10)
    session.next_id = 65_535
    session.in_flight[65_535] = made()
    assert packet_ids([packet for packet in (session.send(made()),) if packet]) == [1]


def test_of_a_subscription_that_is_over_nothing_is_owed_any_more() -> None:
    lasting = Lasting(7)
    one, other = Owed(9, "", None, ""), Owed(8, "", None, "")
    lasting.owed = {("a", "b1"): one, ("a", "b2"): one, ("b", "b1"): other}
    lasting.forget("a")
    assert lasting.owed == {("b", "b1"): other}


@pytest.mark.mqtt("2.2.1-4", old=("2.3.1-4",))
def test_the_id_of_a_message_whose_broker_is_away_is_not_used_again() -> None:
    session = Session("c", window=10)
    session.lasting = Lasting(7)
    session.lasting.absent[2] = Sent(2, "a/b", "away", 5, "", 1, False, (), False)
    run = PacketRun(pulled(*[arrival(at) for at in range(3)]), False, 1, False, 0)
    assert session.send_run(run) is None
    assert packet_ids([packet for packet in (session.send(made()), session.send(made())) if packet]) == [1, 3]


def test_a_message_that_is_found_elsewhere_weighs_what_it_weighs_there() -> None:
    session = Session("c", window=10)
    origin = Origin(a_broker(), "$share/g/a/b", "~filter:a/b")
    came = pulled(arrival(0, payload=b"1"), arrival(1, payload=bytes(100)), origin=origin)
    run = session.send_run(PacketRun(came, False, 1, False, 0))
    assert run is not None
    session.relocate(*session.sent()[1])
    found = session.sent()[1][1].arrival.origin
    assert found is not None
    assert (found.filter, found.is_light) == ("a/b", False)
    assert session.in_flight_bytes == sum(one.weight for one in session.in_flight.values())


def test_of_large_messages_on_their_way_no_payload_is_held_however_they_were_sent() -> None:
    session, large = Session("c", window=10), bytes(LIGHT_BYTES * 2)
    origin = Origin(a_broker(), "a/b", "~filter:a/b")
    one, two = arrival(0, payload=large), arrival(1, payload=large, qos=2)
    run = PacketRun(pulled(one, origin=origin), False, 1, False, 0)
    assert session.send_run(run) == run.data
    session.next_id = 2
    assert session.send(blob(two, Variant(False, 2, False), 0)) is not None
    bytes_before = session.in_flight_bytes
    session.relocate(*session.sent()[0])
    assert [len(made.arrival.payload) + len(made.tail) for _, made in session.sent()] == [0, 0]
    assert session.in_flight_bytes == bytes_before > 2 * len(large), "they count in full for the window"
    session.acknowledged(1)
    session.received(2, refused=False)
    assert session.in_flight_bytes == 0


def test_nothing_is_worth_reading_for_a_client_that_can_be_sent_nothing() -> None:
    session = Session("c", window=100)
    assert not session.is_worth_reading, "nobody is there"
    session.device = cast(Client, Reader())
    assert session.is_worth_reading
    for at in range(2):
        session.send(blob(arrival(at), Variant(False, 1, False), 0))
    session.window_bytes = session.in_flight_bytes
    assert not session.is_worth_reading
    session.acknowledged(1)
    assert session.is_worth_reading
    cast(Reader, session.device).is_full = True
    assert not session.is_worth_reading


class Exchanges(RuleBasedStateMachine):
    """Any order of deliveries, acknowledgements and new connections keeps ids unique, their order and the window."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session("c", window=7)
        self.open: dict[int, int] = {}
        self.wanting: list[int] = []  # what the connection has not been sent again yet

    @rule(qos=st.sampled_from([1, 2]))
    def send(self, qos: int) -> None:
        packet = self.session.send(made(qos=qos))
        assert (packet is None) == (len(self.open) >= self.session.window)
        if packet is not None:
            packet_id = packet_ids([packet])[0]
            assert packet_id not in self.open
            self.open[packet_id] = qos

    @rule(packet_id=st.integers(1, 20))
    def puback(self, packet_id: int) -> None:
        assert self.session.acknowledged(packet_id) == (self.open.get(packet_id) == 1)
        if self.open.get(packet_id) == 1:
            del self.open[packet_id]

    @rule(packet_id=st.integers(1, 20), refused=st.booleans())
    def pubrec(self, packet_id: int, refused: bool) -> None:
        self.session.received(packet_id, refused)
        if self.open.get(packet_id) == 2:
            self.open[packet_id] = 3
            if refused:
                del self.open[packet_id]

    @rule(packet_id=st.integers(1, 20))
    def pubcomp(self, packet_id: int) -> None:
        assert self.session.completed(packet_id) == (self.open.get(packet_id) == 3)
        if self.open.get(packet_id) == 3:
            del self.open[packet_id]

    @rule(window=st.integers(1, 7))
    def new_connection(self, window: int) -> None:
        self.session.window = window
        come_back(self.session, 1 << 20)
        self.wanting = [packet_id for packet_id, state in self.open.items() if state != 3]
        assert sorted(packet_ids(pubrels_of(self.session), at=2)) == sorted(set(self.open) - set(self.wanting))

    @invariant()
    def what_is_resent_goes_in_order_as_far_as_there_is_room(self) -> None:
        self.wanting = [packet_id for packet_id in self.wanting if self.open.get(packet_id, 3) != 3]
        free = max(0, self.session.window - (len(self.open) - len(self.wanting)))
        assert packet_ids(more_again(self.session)) == self.wanting[:free]
        del self.wanting[:free]

    @invariant()
    def the_window_counts_every_open_exchange(self) -> None:
        assert self.session.room() == (0 if self.session.to_resend else self.session.window - len(self.open))


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=50)


# ---------------------------------------------------------------- overlapping subscriptions


def delivering(session: Session, **message: object) -> list[Cursor]:
    """The cursors that would deliver a message which is in all their queues."""
    one = arrival(**message)  # type: ignore[arg-type]
    found = []
    for cursor in session.overlap.cursors:
        if session.overlap.primary(cursor, one) is cursor:
            found.append(cursor)
    return found


def test_queues_of_another_broker_do_not_count() -> None:
    session = Session("c", 10)
    subscribed(session, "a/#", broker=a_broker())
    here = subscribed(session, "a/b")
    assert session.overlap.matching(here, arrival(name="a/b")) == [here]
    assert delivering(session, name="a/b") == session.overlap.cursors


@given(st.lists(st.sampled_from(FILTERS), unique=True, min_size=1), st.integers(1000, 1010), st.data())
def test_a_message_is_delivered_by_exactly_one_cursor_if_any_counts(
    filters: list[str], position: int, data: st.DataObject
) -> None:
    session = Session("c", 10)
    cursors = [subscribed(session, one, start=data.draw(st.integers(1000, 1010))) for one in filters]
    by_age = sorted(cursors, key=lambda one: one.start)
    assert session.overlap.cursors == by_age, "as a resumed session has them, whatever the order of its subscriptions"
    counting = [one for one in by_age if one.subscription.filter != "c/d" and one.start <= position]
    in_queue = [one for one in cursors if one.subscription.filter != "c/d"]
    message = arrival(name="a/b", position=position)
    found = []
    for one in in_queue:  # the broker puts it into exactly these queues
        matching, primary = session.overlap.matching(one, message), session.overlap.primary(one, message)
        assert [primary] == [*matching[:1], None][:1]
        if primary is one:
            found.append(one)
    assert found == counting[:1]
