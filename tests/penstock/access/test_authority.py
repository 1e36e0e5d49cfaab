"""Logins: each mechanism as it should be, and each way to get round it."""

from __future__ import annotations

import math
from typing import Any

import jwt
import pytest
import scramp

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority, Exchange, Known
from penstock.access.passwords import Hashed, Users
from penstock.access.policy import CERTIFICATE, SCRAM, SERVICE, TOKEN, UNPROVEN, Identity
from penstock.access.scram import derive_keys
from penstock.access.scram_exchange import Challenge, Denied
from penstock.access.tokens import TokenKeys, TokenRules
from penstock.protocol import logins
from penstock.protocol.logins import server_proof, service_proof

KEY = bytes(range(32))
SECRET = "a secret of more than thirty-two bytes"
NOW_S = 1_000_000


class Hands:
    """An authority, its clock and its nonces, by hand."""

    def __init__(self, key: bytes | None = KEY, certificates: bool = False) -> None:
        self.now_ms = NOW_S * 1000
        self.nonces = 0
        self.authority = Authority(self.nonce, lambda: self.now_ms, key, certificates)
        keys = derive_keys(b"pencil", bytes(16), 4096)
        self.authority.set_users(Users({"billing": Hashed(14, 8, 1, bytes(16), bytes(32), keys)}, bytes(32)))
        self.authority.set_tokens(TokenKeys(SECRET, TokenRules(audience="penstock", leeway_s=0)))

    def nonce(self) -> bytes:
        self.nonces += 1
        return self.nonces.to_bytes(32, "big")

    def begin(self, mechanism: str, is_private: bool = True) -> Exchange:
        exchange = self.authority.begin(mechanism, is_private)
        assert not isinstance(exchange, Denied)
        return exchange


def scram(exchange: Exchange, user: str = "billing", password: str = "pencil") -> tuple[Any, list[bytes]]:
    """The end of an exchange with the library that clients use, and what the client sent."""
    client = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
    first = client.get_client_first().encode()
    challenge = exchange.receive(first)
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.data.decode())
    last = client.get_client_final().encode()
    step = exchange.receive(last)
    if isinstance(step, Known):
        client.set_server_final(step.data.decode())
    return step, [first, last]


def token(**claims: object) -> bytes:
    given = {"sub": "billing", "aud": "penstock", "exp": NOW_S + 60} | claims
    return jwt.encode({name: value for name, value in given.items() if value is not None}, SECRET, "HS256").encode()


def test_a_password_proves_a_user_and_a_wrong_one_nobody() -> None:
    hands = Hands()
    step, _ = scram(hands.begin(logins.SCRAM))
    assert step.identity == Identity("billing", SCRAM)
    for user, password in (("billing", "wrong"), ("nobody", "pencil")):
        exchange = hands.begin(logins.SCRAM)
        assert isinstance(scram(exchange, user, password)[0], Denied)
        assert exchange.claimed == user


def test_for_a_failed_login_the_audit_log_names_a_user_who_is_there_and_nobody_else() -> None:
    authority = Hands().authority
    assert authority.claimed("billing", SCRAM) == Identity("billing", SCRAM)
    assert authority.claimed("a password in the wrong field", SCRAM) is UNPROVEN


def test_a_login_that_was_overheard_cannot_be_replayed() -> None:
    hands = Hands()
    _, (first, last) = scram(hands.begin(logins.SCRAM))
    again = hands.begin(logins.SCRAM)
    assert isinstance(again.receive(first), Challenge)
    assert isinstance(again.receive(last), Denied)
    assert isinstance(again.receive(last), Denied)


def test_a_token_counts_until_it_ends() -> None:
    hands = Hands()
    step = hands.begin(logins.TOKEN).receive(token())
    assert isinstance(step, Known)
    assert step.identity == Identity("billing", TOKEN, NOW_S + 60.0)
    assert hands.authority.still(step.identity)
    hands.now_ms += 60_000
    assert not hands.authority.still(step.identity)


@pytest.mark.parametrize(
    "forged",
    [
        jwt.encode({"sub": "ada", "aud": "penstock", "exp": NOW_S + 60}, "", "none").encode(),
        jwt.encode({"sub": "ada", "aud": "penstock", "exp": NOW_S + 60}, "x" * 40, "HS256").encode(),
        jwt.encode({"sub": "ada", "aud": "penstock", "exp": NOW_S + 60}, SECRET * 2, "HS512").encode(),
        token(exp=NOW_S - 1),
        token(exp=None),
        token(aud="another"),
        token(aud=None),
        token(sub=None),
        token(nbf=NOW_S + 30),
        token(sub="a\x00b"),
        token()[:-2] + b"AA",
        b"",
        b"\xff" * 100,
        b"eyJ" + b"." * 100_000,
    ],
    ids=range(14),
)
def test_a_forged_token_is_nobodys(forged: bytes) -> None:
    assert isinstance(Hands().begin(logins.TOKEN).receive(forged), Denied)


def test_a_token_is_not_taken_where_others_can_listen() -> None:
    assert isinstance(Hands().authority.begin(logins.TOKEN, is_private=False), Denied)


def test_services_and_servers_prove_the_key_to_each_other() -> None:
    exchange, nonce = Hands().begin(logins.CLUSTER_KEY), bytes(32)
    challenge = exchange.receive(nonce + b"gateway-1")
    assert isinstance(challenge, Challenge)
    step = exchange.receive(service_proof(KEY, nonce, challenge.data, "gateway-1"))
    assert step == Known(Identity("gateway-1", SERVICE), server_proof(KEY, nonce, challenge.data, "gateway-1"))


@pytest.mark.parametrize(
    "forge",
    [
        lambda nonce: service_proof(bytes(32), bytes(32), nonce, "gateway-1"),  # another key
        lambda nonce: service_proof(KEY, bytes(32), nonce, "gateway-2"),  # another name
        lambda nonce: service_proof(KEY, bytes(32), bytes(32), "gateway-1"),  # a proof of another connection
        lambda nonce: server_proof(KEY, bytes(32), nonce, "gateway-1"),  # the server's own, sent back
        lambda nonce: b"",
    ],
)
def test_a_proof_counts_once_for_one_name_and_one_side(forge: Any) -> None:
    exchange = Hands().begin(logins.CLUSTER_KEY)
    challenge = exchange.receive(bytes(32) + b"gateway-1")
    assert isinstance(challenge, Challenge)
    assert isinstance(exchange.receive(forge(challenge.data)), Denied)
    assert isinstance(exchange.receive(service_proof(KEY, bytes(32), challenge.data, "gateway-1")), Denied)


@pytest.mark.parametrize("begun", [b"", bytes(31), bytes(32), bytes(32) + b"\xff", bytes(32) + b"x" * 256])
def test_a_service_without_nonce_or_name_is_refused(begun: bytes) -> None:
    assert isinstance(Hands().begin(logins.CLUSTER_KEY).receive(begun), Denied)


def test_a_cluster_without_a_key_makes_nobody_a_service() -> None:
    step = Hands(key=None).begin(logins.CLUSTER_KEY).receive(bytes(32) + b"gateway-1")
    assert step == Known(UNPROVEN)


@pytest.mark.parametrize("mechanism", ["", "PLAIN", "scram-sha-256", "EXTERNAL"])
def test_other_mechanisms_are_not_taken(mechanism: str) -> None:
    assert isinstance(Hands().authority.begin(mechanism), Denied)


def test_certificates_count_where_they_are_asked_for_and_until_they_end() -> None:
    assert Hands(certificates=True).authority.of_certificate("d1", NOW_S + 1.0) == Identity(
        "d1", CERTIFICATE, NOW_S + 1.0
    )
    assert Hands(certificates=True).authority.of_certificate("d1", NOW_S - 1.0) is UNPROVEN
    assert Hands(certificates=True).authority.of_certificate("", math.inf) is UNPROVEN
    assert Hands().authority.of_certificate("d1", math.inf) is UNPROVEN


def test_changes_are_counted_and_a_user_who_is_removed_is_nobody() -> None:
    authority = Hands().authority
    before = authority.version
    assert authority.still(Identity("billing", SCRAM))
    authority.set_users(Users({}))
    authority.set_acl(parse_acl(""))
    assert not authority.still(Identity("billing", SCRAM))
    assert authority.version == before + 2
    assert authority.asks
    assert not Authority(lambda: b"", lambda: 0).asks
