"""Signatures are what `openssl dgst -sha1 -hmac secret -binary | base64` makes of the same bytes."""

from __future__ import annotations

import pytest

from remoting.frames import Command
from remoting.signatures import ACCESS_KEY, SIGNATURE, is_signed, signature

SECRET = b"secret"
OF_ADA12X = "/aXlUnB70z/18KUwKV18CtRpMEM="
OF_ADAFALSE12X = "AkninlXK2AfhSNcgwHSiThriqYA="


def command(**fields: str) -> Command:
    return Command(10, fields={"b": "2", ACCESS_KEY: "ada", "a": "1"} | fields, body=b"x")


def test_values_are_signed_in_the_order_of_their_names_and_then_the_body() -> None:
    assert signature(command(), SECRET) == OF_ADA12X
    assert is_signed(command(Signature=OF_ADA12X), SECRET)


def test_the_field_that_old_clients_add_behind_the_signature_may_be_in_it_or_not() -> None:
    for shown in (OF_ADA12X, OF_ADAFALSE12X):
        assert is_signed(command(Signature=shown, _UNIQUE_KEY_QUERY="false"), SECRET)


@pytest.mark.parametrize(
    "changed",
    [
        {"a": "2"},
        {"c": "3"},
        {SIGNATURE: ""},
        {SIGNATURE: OF_ADA12X[:-1]},
        {SIGNATURE: "\u00e9"},
        {ACCESS_KEY: "bob"},
    ],
)
def test_whatever_is_changed_is_not_signed(changed: dict[str, str]) -> None:
    assert not is_signed(command(**({SIGNATURE: OF_ADA12X} | changed)), SECRET)
    assert not is_signed(command(Signature=OF_ADA12X), b"other")
