"""What a connection of a name server has to prove before it may speak for a broker."""

from __future__ import annotations

from itertools import count

import pytest

from namesrv.proofs import Proofs
from penstock.errors import NotAuthorized
from penstock.protocol.requests.request import Request
from penstock.protocol.requests.routes import (
    BrokerHeartbeat,
    ProveBroker,
    QueryRoute,
    QueryTopics,
    RegisterBroker,
    UnregisterBroker,
)
from penstock.service.cluster_secret import broker_proof

SECRET = bytes(range(32))
NAME, ADDRESS = "a", "10.0.0.3:10911"
SPEAKING: list[Request] = [
    RegisterBroker(NAME, ADDRESS, 1, 30.0, ()),
    BrokerHeartbeat(NAME, ADDRESS, 1, 30.0),
    UnregisterBroker(NAME, ADDRESS),
]


def connection(secret: bytes | None = SECRET) -> Proofs:
    numbers = count()
    return Proofs(secret, lambda: b"%032d" % next(numbers))


def proof_of(nonce: bytes, secret: bytes = SECRET, name: str = NAME, address: str = ADDRESS) -> ProveBroker:
    return ProveBroker(name, address, broker_proof(secret, nonce, name, address))


def check_all_refused(proofs: Proofs) -> None:
    for request in SPEAKING:
        with pytest.raises(NotAuthorized, match=r"has not proved to be broker 'a' at 10\.0\.0\.3:10911"):
            proofs.check(request)


def test_without_a_proof_a_connection_registers_renews_and_ends_no_broker_and_may_ask() -> None:
    proofs = connection()
    check_all_refused(proofs)
    proofs.challenge()
    check_all_refused(proofs)
    proofs.check(QueryRoute("t"))
    proofs.check(QueryTopics())


def test_with_its_proof_a_broker_may() -> None:
    proofs = connection()
    proofs.prove(proof_of(proofs.challenge().nonce))
    for request in SPEAKING:
        proofs.check(request)


def test_a_proof_is_for_one_name_and_one_address() -> None:
    proofs = connection()
    proofs.prove(proof_of(proofs.challenge().nonce, name="b"))
    check_all_refused(proofs)
    proofs.prove(proof_of(proofs.challenge().nonce, address="10.0.0.9:10911"))
    check_all_refused(proofs)


def test_a_wrong_proof_is_refused_and_ends_what_was_proved_before() -> None:
    proofs = connection()
    proofs.prove(proof_of(proofs.challenge().nonce))
    with pytest.raises(NotAuthorized, match="broker 'a' has another cluster secret"):
        proofs.prove(proof_of(proofs.challenge().nonce, secret=b"x" * 32))
    check_all_refused(proofs)


def test_a_proof_that_was_overheard_is_worth_nothing_on_the_same_connection_and_on_another() -> None:
    proofs, other = connection(), Proofs(SECRET, lambda: b"another".ljust(32))
    overheard = proof_of(proofs.challenge().nonce)
    proofs.prove(overheard)
    with pytest.raises(NotAuthorized):
        proofs.prove(overheard)
    other.challenge()
    with pytest.raises(NotAuthorized):
        other.prove(overheard)
    check_all_refused(other)


def test_a_proof_before_any_challenge_is_refused_also_one_over_no_nonce() -> None:
    proofs = connection()
    with pytest.raises(NotAuthorized, match="without a challenge"):
        proofs.prove(proof_of(b""))
    check_all_refused(proofs)


def test_only_the_last_challenge_counts() -> None:
    proofs = connection()
    first = proofs.challenge().nonce
    assert proofs.challenge().nonce != first
    with pytest.raises(NotAuthorized):
        proofs.prove(proof_of(first))


def test_a_name_server_without_a_secret_asks_for_no_proof() -> None:
    proofs = connection(None)
    assert proofs.challenge().nonce == b""
    proofs.prove(ProveBroker(NAME, ADDRESS, b""))
    for request in SPEAKING:
        proofs.check(request)
