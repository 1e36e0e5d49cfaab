"""MQTT 5, 4.12 and 3.15: enhanced authentication, with SCRAM-SHA-256 as the method."""

from __future__ import annotations

import pytest
from proving import AGAIN, CONTINUE, auth, begin, logged_in, prove, proving_gateway
from scram_client import METHOD, ScramClient

from gateway.mqtt.codec import encode
from gateway.mqtt.connection import Connection
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Subscribe,
    Subscription,
)
from gateway.mqtt.properties import Properties
from gateway.mqtt.reader import PacketReader


@pytest.mark.mqtt("4.12.0-2", "4.12.0-5", "3.15.1-1", "3.15.2-1")
def test_the_server_asks_on_with_0x18_and_every_packet_of_it_names_the_method() -> None:
    gateway, _ = proving_gateway()
    scram = ScramClient("alice", "pencil")
    client = begin(gateway, scram)
    challenge = client.got_one(Auth)
    assert encode(challenge, 5)[0] == 0xF0
    assert challenge.reason_code == CONTINUE
    assert challenge.properties.authentication_method == METHOD
    client.send(auth(scram.final(challenge.properties.authentication_data)))
    connack = client.got_one(Connack)
    assert connack.reason_code == 0
    assert connack.properties.authentication_method == METHOD
    assert scram.believes(connack.properties.authentication_data)
    client.send(auth(scram.first, AGAIN))
    prove(client, scram)
    done = client.got_one(Auth)
    assert (done.reason_code, done.properties.authentication_method) == (0, METHOD)


def test_a_login_that_was_overheard_is_worth_nothing_on_another_connection() -> None:
    gateway, _ = proving_gateway()
    scram = ScramClient("alice", "pencil")
    client = begin(gateway, scram)
    proof = scram.final(client.got_one(Auth).properties.authentication_data)
    client.send(auth(proof))
    assert client.got_one(Connack).reason_code == 0
    other = begin(gateway, scram, "other")
    assert scram.final(other.got_one(Auth).properties.authentication_data) != proof, "the nonce is another one"
    other.send(auth(proof))
    assert other.got() == [Connack(False, 0x87)]
    assert other.is_closed


@pytest.mark.mqtt("4.12.0-1")
@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "scram-sha-256", "SCRAM-SHA-256-PLUS", ""])
def test_a_method_that_is_not_offered_is_0x8c(method: str) -> None:
    gateway, _ = proving_gateway()
    client = gateway.open(5)
    client.send(Connect("c", level=5, properties=Properties(authentication_method=method)))
    assert client.got() == [Connack(False, 0x8C)]
    assert client.is_closed


@pytest.mark.mqtt("4.12.0-4")
@pytest.mark.parametrize("first", [None, b"", b"p=tls-unique,,n=alice,r=abc", b"nonsense"])
def test_a_first_message_that_is_refused_closes(first: bytes | None) -> None:
    gateway, _ = proving_gateway()
    client = gateway.open(5)
    properties = Properties(authentication_method=METHOD, authentication_data=first)
    client.send(Connect("c", level=5, properties=properties))
    assert client.got() == [Connack(False, 0x87)]
    assert client.is_closed


@pytest.mark.mqtt("3.1.2-30")
@pytest.mark.parametrize(
    "packet", [Publish("t", b"x"), Subscribe(1, (Subscription("t"),)), Pingreq(), Connect("c", level=5)], ids=repr
)
@pytest.mark.parametrize("is_proving", [False, True])
def test_before_the_connack_only_auth_and_disconnect_may_come(packet: Packet, is_proving: bool) -> None:
    """Behind the CONNECT, in one piece with it, or behind the proof, before the answer."""
    gateway, _ = proving_gateway()
    scram = ScramClient("alice", "pencil")
    if is_proving:
        client = begin(gateway, scram)
        challenge = client.got_one(Auth)
        client.send(packet, auth(scram.final(challenge.properties.authentication_data)))
        assert client.got() == [Connack(False, 0x82)]
    else:
        client = gateway.open(5)
        properties = Properties(authentication_method=METHOD, authentication_data=scram.first)
        client.send(Connect("c", level=5, properties=properties), packet)
        challenge, refusal = client.got()
        assert isinstance(challenge, Auth)
        assert refusal == Connack(False, 0x82)
    assert client.is_closed
    assert gateway.broker.messages() == []
    assert gateway.sessions == {}


@pytest.mark.mqtt("3.1.2-30", "4.12.0-3")
def test_what_comes_in_one_piece_with_the_proof_comes_before_the_connack() -> None:
    gateway, _ = proving_gateway()
    scram = ScramClient("alice", "pencil")
    client = begin(gateway, scram)
    challenge = client.got_one(Auth)
    client.send(auth(scram.final(challenge.properties.authentication_data)), Publish("t", b"too early"))
    assert client.is_closed
    assert gateway.broker.messages() == []


@pytest.mark.mqtt("4.12.0-3", "4.12.0-5")
@pytest.mark.parametrize(
    "packet",
    [auth(b"x", method="SCRAM-SHA-1"), auth(b"x", AGAIN), auth(b"x", 0), Auth()],
    ids=["method", "again", "success", "empty"],
)
def test_an_auth_of_another_method_or_code_during_the_exchange_is_a_protocol_error(packet: Auth) -> None:
    gateway, _ = proving_gateway()
    client = begin(gateway, ScramClient("alice", "pencil"))
    client.got_one(Auth)
    client.send(packet)
    assert client.got() == [Connack(False, 0x82)]
    assert client.is_closed


@pytest.mark.mqtt("4.12.1-1")
@pytest.mark.parametrize(
    "packet",
    [auth(b"x", AGAIN, "SCRAM-SHA-1"), auth(b"x", CONTINUE), auth(b"x", 0), Auth()],
    ids=["method", "not begun", "success", "empty"],
)
def test_authenticating_again_begins_with_0x19_and_the_method_of_the_connect(packet: Auth) -> None:
    gateway, _ = proving_gateway()
    client = logged_in(gateway)
    client.send(packet)
    assert client.got() == [Disconnect(0x82)]
    assert client.is_closed


@pytest.mark.mqtt("4.12.1-1")
def test_it_cannot_begin_again_while_it_has_not_ended() -> None:
    gateway, _ = proving_gateway()
    client = logged_in(gateway)
    scram = ScramClient("alice", "pencil")
    client.send(auth(scram.first, AGAIN), auth(scram.first, AGAIN))
    challenge, farewell = client.got()
    assert isinstance(challenge, Auth)
    assert farewell == Disconnect(0x82)


@pytest.mark.mqtt("4.12.1-2")
def test_authenticating_again_that_fails_is_told_and_closes_and_hurts_nobody_else() -> None:
    gateway, _ = proving_gateway()
    client, bystander = logged_in(gateway), logged_in(gateway, client_id="bystander")
    scram = ScramClient("alice", "wrong")
    client.send(auth(scram.first, AGAIN))
    prove(client, scram)
    assert client.got() == [Disconnect(0x87)]
    assert client.is_closed
    bystander.publish("t", b"x", 1, packet_id=1)
    assert isinstance(bystander.got_one(Puback), Puback)


@pytest.mark.mqtt("3.15.2-2", "3.15.2-3", "3.1.2-29", "3.1.2-24")
@pytest.mark.parametrize(
    ("asked", "is_sent", "is_told"),
    [
        ({}, True, True),
        ({"request_problem_information": 0}, True, False),
        ({"maximum_packet_size": 62}, True, True),
        ({"maximum_packet_size": 61}, True, False),
        ({"maximum_packet_size": 40}, True, False),
        ({"maximum_packet_size": 39}, False, False),
    ],
)
def test_an_auth_says_why_only_where_there_is_room_and_has_no_user_properties(
    asked: dict[str, int], is_sent: bool, is_told: bool
) -> None:
    connection = Connection(1000, 1000)
    properties = Properties(authentication_method=METHOD, **asked)
    assert connection.receive(encode(Connect("c", level=5, properties=properties), 5)).fault is None
    data = connection.auth(0, bytes(17), "authenticated again")
    assert len(data) == (0 if not is_sent else 62 if is_told else 40)
    if is_sent:
        reader = PacketReader(1000)
        reader.level = 5
        why = "authenticated again" if is_told else None
        expected = Properties(authentication_method=METHOD, authentication_data=bytes(17), reason_string=why)
        assert reader.receive(data) == [Auth(0, expected)]


def test_who_has_authenticated_again_is_told_so() -> None:
    gateway, _ = proving_gateway()
    client = logged_in(gateway)
    scram = ScramClient("alice", "pencil")
    client.send(auth(scram.first, AGAIN))
    prove(client, scram)
    assert client.got_one(Auth).properties.reason_string == "authenticated again"
