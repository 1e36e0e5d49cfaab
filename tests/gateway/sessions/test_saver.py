"""What leaves only after the session is durable, and what is saved now and then."""

from __future__ import annotations

import pytest
from rig import Client, Gateway

from gateway.mqtt.codec import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsubscribe,
)
from gateway.mqtt.packets import Subscription as Asked
from gateway.mqtt.properties import Properties
from gateway.mqtt.reason_codes import ReasonCode
from gateway.sessions.session_state import decode_terms
from gateway.sessions.store import PART_BYTES_MAX
from penstock.errors import Unavailable
from penstock.protocol.requests.sessions import RELEASED, SaveSessions


def subscriber(gateway: Gateway, qos: int = 2) -> Client:
    client = gateway.connect("s", clean_start=False)
    client.subscribe("t", qos=qos)
    return client


@pytest.mark.mqtt("4.3.3-2", "4.3.3-6", old=("4.3.3-1",))
def test_a_qos_2_message_and_its_pubrel_leave_only_after_the_session_is_durable() -> None:
    gateway = Gateway()
    client = subscriber(gateway)
    gateway.broker.holds = (SaveSessions,)
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    message = client.got_one(Publish)
    gateway.broker.holds = (SaveSessions,)
    client.send(Pubrec(message.packet_id))
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.got() == [Pubrel(message.packet_id)]


def test_a_qos_1_message_waits_for_nothing_and_is_saved_with_the_next_tick() -> None:
    gateway = Gateway()
    client = subscriber(gateway, qos=1)
    before = len(gateway.broker.made(SaveSessions))
    for at in range(5):
        gateway.produce("t", bytes([at]), qos=1)
        gateway.round()
    assert [packet.payload for packet in client.got() if isinstance(packet, Publish)] == [
        bytes([at]) for at in range(5)
    ]
    assert len(gateway.broker.made(SaveSessions)) == before
    gateway.pass_time(0.5)
    assert len(gateway.broker.made(SaveSessions)) == before + 1


def test_what_comes_behind_a_message_that_waits_does_not_overtake_it() -> None:
    gateway = Gateway()
    client = subscriber(gateway)
    gateway.broker.holds = (SaveSessions,)
    for at, qos in enumerate((2, 1, 0)):
        gateway.produce("t", bytes([at]), qos=qos)
        gateway.round()
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.payloads() == [b"\0", b"\1", b"\2"]


def test_a_session_that_ends_with_its_connection_is_never_saved() -> None:
    gateway = Gateway()
    client = gateway.connect("c")
    client.subscribe("t", qos=2)
    gateway.produce("t", b"x", qos=2)
    gateway.pass_time(5)
    assert client.payloads() == [b"x"]
    assert gateway.broker.made(SaveSessions) == []


@pytest.mark.mqtt("3.8.4-1", old=("3.8.4-1",))
def test_a_suback_says_that_the_subscription_is_durable() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    gateway.broker.holds = (SaveSessions,)
    client.send(Subscribe(1, (Asked("t", 1),)))
    assert client.got() == []
    gateway.broker.let_go()
    gateway.round()
    assert client.got() == [Suback(1, (1,))]
    entry = gateway.broker.state.sessions.get("c")
    assert entry is not None
    assert b"t" in entry.terms


@pytest.mark.mqtt("3.8.4-1", old=("3.8.4-1",))
def test_a_subscription_whose_save_was_not_heard_is_in_the_next_one() -> None:
    gateway = Gateway()
    client = gateway.connect("s", clean_start=False)
    gateway.broker.refuses[SaveSessions] = Unavailable("away")
    client.send(Subscribe(1, (Asked("t", 1),)))
    assert client.got() == []
    del gateway.broker.refuses[SaveSessions]
    gateway.pass_time(1)
    assert client.got() == [Suback(1, (1,))]
    entry = gateway.broker.state.sessions.get("s")
    assert entry is not None
    assert [one.filter for one in decode_terms(entry.terms)] == ["t"]


def test_a_save_that_is_answered_after_its_connection_has_ended_disturbs_nobody() -> None:
    gateway = Gateway()
    client = subscriber(gateway)
    gateway.broker.holds = (SaveSessions,)
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    client.cut()
    gateway.broker.let_go()
    gateway.round()
    again = gateway.connect("s", clean_start=False)
    assert [(one.payload, one.dup) for one in again.got() if isinstance(one, Publish)] == [(b"x", True)]


def test_what_has_been_unsubscribed_is_looked_for_until_it_is_saved_only() -> None:
    gateway = Gateway()
    client = subscriber(gateway, qos=1)
    client.send(Unsubscribe(2, ("t",)))
    session = client.device.session
    assert session is not None
    assert session.lasting is not None
    gateway.pass_time(1)
    assert session.lasting.closing == {}


def test_a_client_whose_session_is_somebody_elses_by_now_is_told_and_touches_nothing() -> None:
    gateway = Gateway()
    client = gateway.open(5)
    client.send(Connect("c", clean_start=True, level=5))
    client.got_one(Connack)
    mine = gateway.connect("s", clean_start=False)
    mine.subscribe("t", qos=2)
    other = Gateway(beside=gateway, name="other")
    other.tick(other.clock.now_s)
    other.round()
    gateway.broker.leave_alone("gw")
    theirs = other.connect("s", clean_start=False)
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    other.round()
    assert mine.is_closed
    assert mine.payloads() == []
    assert theirs.payloads() == [b"x"]
    assert not client.is_closed


def test_the_last_save_of_a_session_has_its_last_state() -> None:
    gateway = Gateway()
    client = subscriber(gateway, qos=1)
    gateway.produce("t", b"x", qos=1)
    gateway.round()
    message = client.got_one(Publish)
    client.send(Puback(message.packet_id), Disconnect())
    again = gateway.open()
    again.send(Connect("s", clean_start=False))
    assert again.got() == [Connack(True, 0)]


def test_a_session_that_is_too_large_to_be_kept_loses_its_connection_and_nobody_else_anything() -> None:
    gateway = Gateway(subscriptions_max=10_000)
    lasting = Properties(session_expiry_interval=100)
    large = gateway.connect("large", level=5, clean_start=False, properties=lasting)
    large.subscribe("kept", qos=1)
    other = subscriber(gateway)
    long, per_packet = "x" * 990, 100
    gateway.rounds.begin()
    for at in range(PART_BYTES_MAX // len(long) // per_packet + 1):
        some = tuple([Asked(f"{at}/{number}/{long}", 1) for number in range(per_packet)])
        large.device.receive(encode(Subscribe(at + 1, some), 5))
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    assert large.is_closed
    *_, farewell = large.got()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert other.payloads() == [b"x"]
    again = gateway.connect("large", level=5, clean_start=False, properties=lasting)
    gateway.produce("kept", b"y", qos=1)
    gateway.round()
    assert again.payloads() == [b"y"], "it goes on from what was saved before"


def test_a_session_for_which_its_home_has_no_room_loses_its_connection_and_nobody_else_anything() -> None:
    gateway = Gateway()
    lasting = Properties(session_expiry_interval=100)
    growing = gateway.connect("growing", level=5, clean_start=False, properties=lasting)
    growing.subscribe("kept", qos=1)
    other = subscriber(gateway)
    gateway.pass_time(1)
    gateway.broker.limit_sessions(gateway.broker.state.sessions.bytes + 500)
    gateway.rounds.begin()
    growing.device.receive(encode(Subscribe(2, (Asked("x" * 600, 1),)), 5))
    gateway.produce("t", b"x", qos=2)
    gateway.round()
    assert growing.is_closed
    farewell = growing.got_one(Disconnect)
    assert (farewell.reason_code, farewell.properties.reason_string) == (
        ReasonCode.QUOTA_EXCEEDED,
        "the limit sessions_bytes_max is reached",
    )
    assert other.payloads() == [b"x"]
    entry = gateway.broker.state.sessions.get("growing")
    assert entry is not None
    assert (entry.state, entry.owner) == (RELEASED, ""), "its last word was heard without what it keeps"
    again = gateway.connect("growing", level=5, clean_start=False, properties=lasting)
    gateway.produce("kept", b"y", qos=1)
    gateway.round()
    assert again.payloads() == [b"y"], "it goes on from what was saved before"


def test_where_nothing_waits_for_a_save_one_without_room_is_said_again_until_there_is_some() -> None:
    gateway = Gateway()
    client = subscriber(gateway, qos=1)
    gateway.pass_time(1)
    kept = gateway.broker.state.sessions.bytes
    gateway.broker.limit_sessions(kept)
    for at in range(5):
        gateway.produce("t", bytes([at]), qos=1)
        gateway.round()
    gateway.pass_time(2)
    assert client.payloads() == [bytes([at]) for at in range(5)]
    assert (gateway.broker.state.sessions.bytes, client.is_closed) == (kept, False)
    assert gateway.home.refused > 1
    gateway.broker.limit_sessions(1 << 20)
    gateway.pass_time(1)
    assert gateway.broker.state.sessions.bytes > kept


def test_subscriptions_that_found_no_room_are_in_the_save_that_does() -> None:
    gateway = Gateway()
    client = gateway.connect("c", clean_start=False)
    client.subscribe("a", "b", qos=1)
    gateway.pass_time(1)
    entry = gateway.broker.state.sessions.get("c")
    assert entry is not None
    terms = entry.terms
    [session] = gateway.sessions.values()
    gateway.broker.limit_sessions(1)
    assert session.lasting is not None
    session.lasting.has_new_terms = True
    session.subscriptions["a"].name = "position" * 20
    gateway.saver.note(session)
    gateway.pass_time(1)
    assert (entry.terms, client.is_closed) == (terms, False)
    gateway.broker.limit_sessions(1 << 20)
    gateway.pass_time(1)
    assert len(entry.terms) > len(terms)


@pytest.mark.interpreted
def test_a_tick_saves_no_more_than_a_round_can_bear_and_nobody_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.sessions.saver.ENTRIES_PER_TICK", 4)
    gateway = Gateway()
    for at in range(6):
        gateway.connect(f"s{at}", clean_start=False).subscribe("t", qos=1)
    gateway.pass_time(2)
    before = len(gateway.broker.made(SaveSessions))
    gateway.produce("t", b"x", qos=1)
    gateway.round()
    gateway.pass_time(2)
    saved = [[save.client for save in request.saves] for request in gateway.broker.made(SaveSessions)[before:]]
    assert saved == [["s0", "s1"], ["s2", "s3"], ["s4", "s5"]]
