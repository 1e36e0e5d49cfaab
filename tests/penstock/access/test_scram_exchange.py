"""The exchange: RFC 7677's own, every way to get it wrong, and names that nobody can tell apart."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.passwords import Hashed, Users
from penstock.access.scram import ScramKeys, derive_keys
from penstock.access.scram_exchange import (
    CHANNEL_BINDING,
    MALFORMED,
    MESSAGE_BYTES_MAX,
    WRONG_PROOF,
    Challenge,
    Denied,
    Proven,
    ScramExchange,
)
from tests.gateway.scram_client import ScramClient

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = derive_keys(b"pencil", SALT, 4096)
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
USERS = Users({"user": Hashed(14, 8, 1, bytes(16), bytes(32), PENCIL)}, bytes(32))


def keys_of(name: str) -> ScramKeys:
    found = USERS.by_name.get(name) or USERS.decoy(name)
    assert found.scram is not None
    return found.scram


def exchange(nonce: str = SERVER_NONCE) -> ScramExchange:
    return ScramExchange(keys_of, nonce)


def challenged(client: ScramClient, server: ScramExchange) -> bytes:
    challenge = server.receive(client.first)
    assert isinstance(challenge, Challenge)
    return challenge.data


def test_the_exchange_of_rfc_7677_byte_for_byte() -> None:
    server = exchange()
    assert server.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.user == "user"
    assert server.receive(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Proven("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert server.receive(b"c=biws") == Denied(MALFORMED), "it ends once"


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,"])
def test_a_client_without_channel_binding_is_taken_and_the_server_proves_itself(header: str) -> None:
    client, server = ScramClient("user", "pencil", header=header), exchange()
    proven = server.receive(client.final(challenged(client, server)))
    assert isinstance(proven, Proven)
    assert client.believes(proven.data)


def test_a_wrong_password_and_an_unknown_user_end_alike() -> None:
    for name, password in (("user", "wrong"), ("user", ""), ("nobody", "pencil"), ("nobody", "")):
        client, server = ScramClient(name, password), exchange()
        assert server.receive(client.final(challenged(client, server))) == Denied(WRONG_PROOF)


def test_an_unknown_name_has_the_same_salt_each_time_and_the_costs_of_a_user() -> None:
    seen = set()
    for nonce in ("first", "second"):
        client, server = ScramClient("nobody", "x"), exchange(nonce + "x" * 16)
        client.final(challenged(client, server))
        seen.add((client.salt, client.iterations))
    [(salt, iterations)] = seen
    assert (len(salt), iterations) == (len(SALT), 4096)
    assert salt != SALT


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"p=tls-unique,,n=user,r=abc", CHANNEL_BINDING),
        (b"", MALFORMED),
        (b"n,,", MALFORMED),
        (b"x,,n=user,r=abc", MALFORMED),
        (b"n,,n=user", MALFORMED),
        (b"n,,n=user,r=", MALFORMED),
        (b"n,,n=user,r=a b", MALFORMED),
        (b"n,,n=user,r=\xc3\xa9", MALFORMED),
        (b"n,,r=abc,n=user", MALFORMED),
        (b"n,,n=,r=abc", MALFORMED),
        (b"n,,n=us=er,r=abc", MALFORMED),
        (b"n,,n=us=2cer,r=abc", MALFORMED),
        (b"n,,n=us=3=2CDer,r=abc", MALFORMED),
        (b"n,,n=us\x07er,r=abc", MALFORMED),
        (b"n,,n=us\x00er,r=abc", MALFORMED),
        (b"n,,n=\xff,r=abc", MALFORMED),
        (b"n,a=other,n=user,r=abc", MALFORMED),
        (b"n,b=user,n=user,r=abc", MALFORMED),
        (b"n,,m=x,n=user,r=abc", MALFORMED),
        (b"n,,n=user,r=abc,m=x", MALFORMED),
        (b"n,,n=user,r=abc,nonsense", MALFORMED),
        (b"n,,n=user,r=" + b"a" * MESSAGE_BYTES_MAX, MALFORMED),
    ],
)
def test_a_first_message_that_is_none_ends_it(first: bytes, cause: str) -> None:
    server = exchange()
    assert server.receive(first) == Denied(cause)
    assert server.receive(b"n,,n=user,r=abc") == Denied(MALFORMED), "there is no second try"


def test_optional_extensions_are_passed_over_and_names_may_have_commas() -> None:
    assert isinstance(exchange().receive(b"n,,n=user,r=abc,x=what,y=ever"), Challenge)
    server = exchange()
    assert isinstance(server.receive(b"n,,n=a=2Cb=3Dc,r=abc"), Challenge)
    assert server.user == "a,b=c"


def test_a_final_message_that_was_changed_in_any_place_proves_nothing() -> None:
    client, server = ScramClient("user", "pencil"), exchange()
    challenge = challenged(client, server)
    right = client.final(challenge)
    assert isinstance(server.receive(right), Proven)
    parts = right.split(b",")
    changed = [
        right[:-2],
        right + b",x=y",
        b",".join([b"c=" + b64encode(b"y,,"), *parts[1:]]),
        b",".join([parts[0], parts[1] + b"x", parts[2]]),
        b",".join([parts[0], b"r=" + client.nonce.encode(), parts[2]]),
        b",".join([parts[0], parts[1], b"m=x", parts[2]]),
        b",".join([parts[0], parts[1], b"x=y", parts[2]]),
        b",".join([parts[0], parts[1], b"p=" + b64encode(bytes(32))]),
        b",".join([parts[0], parts[1], b"p=" + b64encode(bytes(31))]),
        b",".join([parts[0], parts[1], b"p=!"]),
        b",".join(parts[:2]),
        b",".join([parts[0], parts[2]]),
        b"",
        b"\xff",
    ]
    for data in changed:
        again = exchange()
        assert challenged(client, again) == challenge
        outcome = again.receive(data)
        assert isinstance(outcome, Denied), data
        assert again.receive(right) == Denied(MALFORMED), "one try"


def test_a_proof_cannot_be_used_again() -> None:
    client, server = ScramClient("user", "pencil"), exchange()
    proof = client.final(challenged(client, server))
    again = exchange("another" * 4)
    challenged(client, again)
    assert again.receive(proof) == Denied(MALFORMED)


def test_keys_that_changed_during_the_exchange_prove_nothing() -> None:
    answers = [PENCIL, derive_keys(b"pencil", bytes(16), 4096)]
    client, server = ScramClient("user", "pencil"), ScramExchange(lambda name: answers.pop(0), SERVER_NONCE)
    assert server.receive(client.final(challenged(client, server))) == Denied(WRONG_PROOF)


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_any_bytes_give_a_challenge_or_an_end_and_never_a_login(messages: list[bytes], is_begun: bool) -> None:
    server = exchange()
    if is_begun:
        server.receive(b"n,,n=user,r=abc")
    for data in messages:
        assert isinstance(server.receive(data), Challenge | Denied)


@given(st.text("ab,= é", min_size=1), st.text([chr(one) for one in range(32, 127)], min_size=1))
def test_any_user_with_the_right_password_gets_in_and_with_another_does_not(name: str, password: str) -> None:
    sent = name.replace("=", "=3D").replace(",", "=2C")
    for kept, is_right in ((password, True), (password + "x", False)):
        keys = derive_keys(kept.encode(), bytes(8), 4096)
        client, server = ScramClient(sent, password), ScramExchange(lambda name, keys=keys: keys, SERVER_NONCE)
        outcome = server.receive(client.final(challenged(client, server)))
        assert outcome == (Proven(name, outcome.data) if isinstance(outcome, Proven) else Denied(WRONG_PROOF))
        assert isinstance(outcome, Proven) == is_right
