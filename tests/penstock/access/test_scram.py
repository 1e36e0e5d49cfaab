"""What SCRAM keeps of a password: RFC 7677's keys, RFC 4013's examples."""

from __future__ import annotations

import hashlib
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.scram import ScramKeys, derive_keys, keyed, prepare, prepared_password

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# RFC 7677, 3: the messages whose proof and signature these keys must give.
FIRST = "n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
MESSAGE = f"{FIRST},{NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,{NONCE}".encode()


def test_the_keys_are_those_of_the_rfcs_example() -> None:
    keys = derive_keys(b"pencil", SALT, 4096)
    signature = keyed(keys.stored_key, MESSAGE)
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == keys.stored_key
    assert keyed(keys.server_key, MESSAGE) == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("text", "result"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_text_is_prepared_as_in_the_rfcs_examples(text: str, result: str) -> None:
    assert prepare(text) == result


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "", "\u00ad", "\ue000", "\U0001f511", "\ud800", "a\u0627"])
def test_what_saslprep_forbids_is_an_error_and_as_a_password_taken_as_it_is(text: str) -> None:
    with pytest.raises(ValueError):
        prepare(text)
    raw = text.encode(errors="surrogatepass")
    assert prepared_password(raw) == raw


def test_a_password_is_the_same_however_it_is_typed() -> None:
    composed, decomposed = "caf\u00e9".encode(), "cafe\u0301".encode()
    assert derive_keys(composed, SALT, 4096) == derive_keys(decomposed, SALT, 4096)
    assert derive_keys(b"\xff\xfe", SALT, 4096) != derive_keys(b"\xff", SALT, 4096), "even one that is no text"


@given(st.text())
def test_prepared_text_stays_as_it_is(text: str) -> None:
    try:
        once = prepare(text)
    except ValueError:
        return
    assert prepare(once) == once


def test_keys_are_not_shown() -> None:
    assert repr(ScramKeys(4096, b"salt", b"stored", b"server")) == "ScramKeys(...)"
