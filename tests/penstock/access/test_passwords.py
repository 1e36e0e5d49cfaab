"""The password file: what is kept, what is read back, and what is no line of it."""

from __future__ import annotations

import pytest

from penstock.access.passwords import (
    NOBODY,
    Hashed,
    check_user_name,
    format_passwords,
    hash_password,
    parse_passwords,
    verify,
)
from penstock.errors import InvalidConfig

ALICE = hash_password(b"right", bytes(range(16)))


def test_only_the_password_itself_verifies() -> None:
    assert verify(ALICE, b"right")
    assert not verify(ALICE, b"wrong")
    assert not verify(ALICE, b"")
    assert not verify(NOBODY, b"")


def test_two_users_with_one_password_have_different_hashes() -> None:
    assert hash_password(b"right", bytes(16)).hash != ALICE.hash


def test_a_file_is_read_back_as_it_was_written() -> None:
    users = {"alice": ALICE, "bob o'n": hash_password(b"x", bytes(16))}
    text = "# users\n\n" + format_passwords(users)
    assert parse_passwords(text) == users
    assert b"right".hex() not in text
    assert "right" not in text


def test_the_pages_example_is_a_good_line() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "formats" / "access.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("alice:$scrypt$") and "SALT" not in line]
    assert verify(parse_passwords(line)["alice"], b"wonderland")


GOOD = format_passwords({"alice": ALICE})


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "alice:",
        "alice:plain",
        ":" + GOOD.partition(":")[2],
        GOOD + GOOD,
        GOOD.replace("ln=14", "ln=40"),
        GOOD.replace("ln=14", "ln=0"),
        GOOD.replace("r=8", "r=0"),
        GOOD.replace("ln=14,r=8", "ln=20,r=99"),
        GOOD.replace("$scrypt", "$bcrypt"),
        GOOD.rstrip()[:-20] + "!",
        "a\x00b" + GOOD[5:],
    ],
)
def test_a_line_that_is_none_is_named_by_its_number_and_never_shown(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_passwords("# first\n" + text)
    assert "line " in str(caught.value)
    assert ALICE.hash.hex() not in str(caught.value)
    assert "plain" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a:b", "#a", "a\nb", "x" * 256])
def test_a_name_that_no_line_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig):
        check_user_name(name)


def test_a_hash_is_not_shown() -> None:
    assert repr(ALICE) == repr(Hashed(1, 1, 1, b"", b"")) == "Hashed(...)"
