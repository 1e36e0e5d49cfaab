"""Logins by an exchange: who gets in, what a failure leaves behind, and traffic that goes on meanwhile."""

from __future__ import annotations

import pytest
from proving import AGAIN, PASSWORDS, USERS, auth, begin, logged_in, prove, proving_gateway
from scram_client import METHOD, ScramClient

from gateway.login.attempts import Attempts
from gateway.mqtt.packets import Auth, Connack, Connect, Disconnect, Puback, Publish, Subscribe, Subscription, Will
from gateway.mqtt.properties import Properties
from penstock.access.acl import parse_acl
from penstock.access.passwords import Users


def test_the_user_who_was_proven_is_the_one_of_the_rules() -> None:
    gateway, access = proving_gateway()
    access.set_acl(parse_acl("allow user alice publish %u/#\nallow user mallory all #"))
    client = logged_in(gateway)
    client.publish("alice/a", b"hers", 1, packet_id=1)
    client.publish("mallory/a", b"not hers", 1, packet_id=2)
    assert [one.reason_code for one in client.got() if isinstance(one, Puback)] == [0, 0x87]
    assert access.proven == 1


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "pencil"), ("old", "pencil")])
def test_a_wrong_proof_an_unknown_user_and_one_without_keys_are_told_the_same(name: str, password: str) -> None:
    gateway, access = proving_gateway()
    scram = ScramClient(name, password)
    client = begin(gateway, scram)
    prove(client, scram)
    assert client.got() == [Connack(False, 0x87)]
    assert client.is_closed
    assert (access.proven, access.refused) == (0, 1)
    assert (gateway.connections.half_open, len(gateway.connections)) == (0, 0)


def test_a_failed_login_touches_neither_the_connection_nor_the_session_nor_the_will_of_its_victim() -> None:
    gateway, _ = proving_gateway()
    will = {"will": Will("w", b"alice is gone"), "properties": {"session_expiry_interval": 100}}
    victim = logged_in(gateway, client_id="d1", **will)
    for name, password in (("alice", "wrong"), ("mallory", "trudy")):
        scram = ScramClient(name, password)
        thief = begin(gateway, scram, "d1", will=Will("w", b"never"))
        prove(thief, scram)
        assert thief.got_one(Connack).reason_code == 0x87
        assert thief.is_closed
    unfinished = begin(gateway, ScramClient("alice", "pencil"), "d1", will=Will("w", b"never"))
    unfinished.cut()
    victim.publish("t", b"still here", 1, packet_id=1)
    assert victim.got() == [Puback(1, 0x10)] or victim.got() == []
    assert not victim.is_closed
    assert len(gateway.broker.messages()) == 1, "no will"


def test_a_user_name_beside_the_exchange_must_be_the_proven_one() -> None:
    gateway, _ = proving_gateway()
    for user_name, reason in (("alice", 0), ("mallory", 0x87)):
        scram = ScramClient("alice", "pencil")
        client = begin(gateway, scram, user_name=user_name, password=b"not looked at")
        prove(client, scram)
        assert client.got_one(Connack).reason_code == reason


def test_a_client_without_an_id_gets_one() -> None:
    gateway, _ = proving_gateway()
    scram = ScramClient("alice", "pencil")
    client = begin(gateway, scram, "")
    prove(client, scram)
    connack = client.got_one(Connack)
    assert connack.properties.assigned_client_identifier
    assert connack.properties.authentication_method == METHOD


def test_the_time_of_a_connect_covers_the_whole_exchange() -> None:
    gateway, _ = proving_gateway(connect_wait_s=5)
    client = begin(gateway, ScramClient("alice", "pencil"))
    client.got_one(Auth)
    gateway.pass_time(4)
    assert not client.is_closed
    gateway.pass_time(2)
    assert client.is_closed
    assert gateway.quotas.refused["connect_wait_s"] == 1


def test_a_client_may_give_up_its_login() -> None:
    gateway, _ = proving_gateway()
    client = begin(gateway, ScramClient("alice", "pencil"))
    client.got_one(Auth)
    client.send(Disconnect())
    assert client.got() == []
    assert client.is_closed
    assert gateway.connections.half_open == 0


def test_a_limit_is_met_before_the_exchange_begins() -> None:
    gateway, _ = proving_gateway(address_connects_per_s_max=1)
    begin(gateway, ScramClient("alice", "pencil"))
    client = begin(gateway, ScramClient("alice", "pencil"), "d")
    assert client.got_one(Connack).reason_code == 0x9F


def test_who_has_still_to_prove_who_it_is_sends_no_large_packet() -> None:
    gateway, _ = proving_gateway(connect_packet_bytes_max=2000)
    client = begin(gateway, ScramClient("alice", "pencil"))
    client.got_one(Auth)
    client.send_bytes(b"\xf0\xd1\x0f")  # an AUTH of 2001 bytes is announced
    assert client.got_one(Connack).reason_code == 0x95
    assert client.is_closed
    proven = logged_in(gateway)
    proven.publish("t", bytes(3000), 1, packet_id=1)
    assert isinstance(proven.got_one(Puback), Puback)


def test_a_challenge_that_the_client_cannot_take_ends_the_login() -> None:
    gateway, _ = proving_gateway()
    client = begin(gateway, ScramClient("alice", "pencil"), properties={"maximum_packet_size": 60})
    assert client.got() == [Connack(False, 0x95)]
    assert client.is_closed


# ---------------------------------------------------------------- again


def test_traffic_goes_on_while_a_client_authenticates_again() -> None:
    gateway, access = proving_gateway()
    client = logged_in(gateway)
    client.send(Subscribe(1, (Subscription("t", 1),)))
    client.got()
    scram = ScramClient("alice", "pencil", nonce="another")
    client.send(auth(scram.first, AGAIN), Publish("t", b"in between", 1, packet_id=7))
    challenge, *others = sorted(client.got(), key=lambda packet: not isinstance(packet, Auth))
    assert {type(one) for one in others} == {Puback, Publish}
    assert isinstance(challenge, Auth)
    client.send(auth(scram.final(challenge.properties.authentication_data)))
    done = client.got_one(Auth)
    assert done.reason_code == 0
    assert scram.believes(done.properties.authentication_data)
    assert access.proven == 2
    assert not client.is_closed


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("mallory", "trudy")])
def test_who_fails_or_is_another_when_it_authenticates_again_is_told_and_closed(name: str, password: str) -> None:
    gateway, _ = proving_gateway()
    client = logged_in(gateway)
    scram = ScramClient(name, password)
    client.send(auth(scram.first, AGAIN))
    prove(client, scram)
    assert client.got() == [Disconnect(0x87)]
    assert client.is_closed


def test_a_user_who_was_removed_cannot_authenticate_again() -> None:
    gateway, access = proving_gateway()
    client = logged_in(gateway)
    access.set_users(Users({name: one for name, one in USERS.by_name.items() if name != "alice"}, USERS.secret))
    scram = ScramClient("alice", "pencil")
    client.send(auth(scram.first, AGAIN))
    prove(client, scram)
    assert client.got() == [Disconnect(0x87)]


def test_authenticating_again_takes_no_longer_than_a_connect_and_as_often_as_one_likes() -> None:
    gateway, _ = proving_gateway(connect_wait_s=5)
    client = logged_in(gateway)
    for _ in range(3):
        scram = ScramClient("alice", "pencil")
        client.send(auth(scram.first, AGAIN))
        prove(client, scram)
        assert client.got_one(Auth).reason_code == 0
        gateway.pass_time(3)
    client.send(auth(scram.first, AGAIN))
    client.got_one(Auth)
    gateway.pass_time(4)
    assert not client.is_closed
    gateway.pass_time(2)
    assert client.got() == [Disconnect(0x87)]
    assert client.is_closed


def test_every_user_of_the_file_gets_in() -> None:
    gateway, _ = proving_gateway()
    for name in PASSWORDS:
        logged_in(gateway, name, f"of {name}")


def test_without_a_password_file_there_is_no_method() -> None:
    gateway, access = proving_gateway()
    access._has_users = False
    client = gateway.open(5)
    client.send(Connect("c", level=5, properties=Properties(authentication_method=METHOD)))
    assert client.got() == [Connack(False, 0x8C)]


def test_the_causes_of_failed_exchanges_are_told_apart_in_the_figures_only() -> None:
    gateway, access = proving_gateway()
    for name, password, header in (
        ("alice", "wrong", "n,,"),
        ("nobody", "x", "n,,"),
        ("old", "pencil", "n,,"),
        ("alice", "pencil", "p=tls-unique,,"),
        ("a=b", "x", "n,,"),
    ):
        scram = ScramClient(name, password, header=header)
        client = begin(gateway, scram)
        if not client.is_closed:
            prove(client, scram)
        assert client.got() == [Connack(False, 0x87)]
    refused = {cause: count for cause, count in access.attempts.refused.items() if count}
    assert refused == {
        "wrong_proof": 1,
        "unknown_user": 1,
        "no_scram_keys": 1,
        "channel_binding": 1,
        "malformed": 1,
    }


def test_a_guesser_of_proofs_is_turned_away_and_who_is_connected_is_not() -> None:
    gateway, access = proving_gateway()
    access.attempts = Attempts(2, gateway.quotas.refuse, gateway.clock.monotonic)
    connected = logged_in(gateway)
    for number in range(4):
        scram = ScramClient("alice", f"wrong {number}")
        client = begin(gateway, scram, "guesser")
        if number < 2:
            prove(client, scram)
        assert client.got_one(Connack).reason_code == (0x87 if number < 2 else 0x9F)
    assert gateway.quotas.refused["address_failed_logins_per_min_max"] == 2
    again = ScramClient("alice", "pencil")
    connected.send(auth(again.first, AGAIN))
    prove(connected, again)
    assert connected.got_one(Auth).reason_code == 0


def test_proofs_of_exchanges_that_began_before_the_limit_was_reached_are_not_judged() -> None:
    gateway, access = proving_gateway()
    access.attempts = Attempts(2, gateway.quotas.refuse, gateway.clock.monotonic)
    guesses = [ScramClient("alice", f"wrong {number}") for number in range(5)]
    clients = [begin(gateway, scram, f"guesser{at}") for at, scram in enumerate(guesses)]
    right = ScramClient("alice", "pencil")
    late = begin(gateway, right, "late")
    for client, scram in zip([*clients, late], [*guesses, right], strict=True):
        prove(client, scram)
        assert client.got_one(Connack).reason_code == 0x87
    assert access.attempts.refused["wrong_proof"] == 2
    assert gateway.quotas.refused["address_failed_logins_per_min_max"] == 4
