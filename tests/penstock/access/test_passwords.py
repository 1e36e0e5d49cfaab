"""The password file: what is kept, what is read back, and what is no line of it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.passwords import (
    Hashed,
    Users,
    check_user_name,
    format_passwords,
    hash_password,
    parse_passwords,
    stands_for_another,
    verify,
)
from penstock.access.scram import derive_keys, keyed
from penstock.errors import InvalidConfig

ALICE = hash_password(b"right", bytes(range(16)))
WITH_SCRAM = ALICE._replace(scram=derive_keys(b"right", bytes(range(16, 32)), 4096))


def test_only_the_password_itself_verifies() -> None:
    assert verify(ALICE, b"right")
    assert not verify(ALICE, b"wrong")
    assert not verify(ALICE, b"")


@pytest.mark.parametrize("password", [b"right", b"x" * 63, b"x" * 64, b"x" * 65, b"x" * 1000, "é".encode() * 16])
def test_what_hmac_takes_for_a_password_is_not_that_password(password: bytes) -> None:
    hashed = hash_password(password, bytes(16))
    assert verify(hashed, password)
    for padding in (1, 64 - len(password), 65 - len(password)):
        if padding > 0:
            assert not verify(hashed, password + bytes(padding))
    assert not verify(hashed, sha256(password).digest())
    assert not verify(hash_password(b"", bytes(16)), b"\0")


def test_bytes_inside_a_password_may_be_any_and_32_of_text_are_a_password() -> None:
    for password in (b"a\0b", b"\xff" * 31, b"\xff" * 33, b"x" * 32, "\u20ac".encode() * 10 + b"\t\n"):
        assert verify(hash_password(password, bytes(16)), password)


def alike(password: bytes) -> set[bytes]:
    """A password, and others that HMAC may take for it."""
    return {password, password.rstrip(b"\0"), password + b"\0", password.ljust(64, b"\0"), sha256(password).digest()}


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_two_passwords_that_are_taken_have_the_same_hmac_only_if_they_are_one(one: bytes, other: bytes) -> None:
    taken = [password for password in alike(one) | {other} if not stands_for_another(password)]
    assert len({keyed(password, b"") for password in taken}) == len(taken)


def test_two_users_with_one_password_have_different_hashes() -> None:
    assert hash_password(b"right", bytes(16)).hash != ALICE.hash


def test_a_file_is_read_back_as_it_was_written() -> None:
    users = {"alice": ALICE, "bob o'n": hash_password(b"x", bytes(16)), "carol": WITH_SCRAM}
    users |= {"dan": ALICE._replace(signing=b"eight by"), "erin": WITH_SCRAM._replace(signing=bytes(256))}
    text = "# users\n\n" + format_passwords(Users(users, bytes(range(32))))
    read = parse_passwords(text)
    assert (read.by_name, read.secret) == (users, bytes(range(32)))
    assert b"right".hex() not in text
    assert "right" not in text


def test_the_pages_example_is_a_good_line() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "formats" / "access.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("alice:$scrypt$") and "SALT" not in line]
    assert verify(parse_passwords(line).by_name["alice"], b"wonderland")


GOOD = format_passwords(Users({"alice": ALICE}))
SCRAM = format_passwords(Users({"alice": WITH_SCRAM}))
SECRET = format_passwords(Users({}, bytes(32)))
SIGNING = format_passwords(Users({"alice": ALICE._replace(signing=b"eight by")}))


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
        GOOD.replace("ln=14,r=8", "ln=16,r=1"),
        GOOD.replace("ln=14,r=8", "ln=17,r=1"),
        GOOD.replace("$scrypt", "$bcrypt"),
        GOOD.rstrip()[:-20] + "!",
        "a\x00b" + GOOD[5:],
        SCRAM.replace("i=4096", "i=4095"),
        SCRAM.replace("i=4096", "i=10000001"),
        SCRAM.replace("sha-256", "sha-1"),
        SCRAM.rstrip()[:-1] + "!",
        SCRAM.rstrip()[:-1],
        SIGNING.rstrip()[:-2],
        SIGNING.replace("hmac-sha1", "hmac-md5"),
        SIGNING.rstrip() + "A" * 400,
        SECRET + SECRET,
        SECRET.rstrip()[:-1],
        ":" + SECRET,
    ],
)
def test_a_line_that_is_none_is_named_by_its_number_and_never_shown(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_passwords("# first\n" + text)
    assert "line " in str(caught.value)
    assert ALICE.hash.hex() not in str(caught.value)
    assert "plain" not in str(caught.value)


@pytest.mark.parametrize("block", [1, 8, 63])
def test_the_dearest_parameters_that_a_line_may_have_can_be_computed(block: int) -> None:
    text = GOOD.replace("r=8", f"r={block}")
    taken = [cost for cost in range(1, 21) if is_taken(text.replace("ln=14", f"ln={cost}"))]
    [alice] = parse_passwords(text.replace("ln=14", f"ln={taken[-1]}")).by_name.values()
    assert not verify(alice, b"right")
    assert taken == list(range(1, taken[-1] + 1))


def is_taken(text: str) -> bool:
    try:
        parse_passwords(text)
    except InvalidConfig:
        return False
    return True


@pytest.mark.parametrize("name", ["", "a:b", "#a", "a\nb", "x" * 256])
def test_a_name_that_no_line_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig):
        check_user_name(name)


def test_a_hash_is_not_shown() -> None:
    assert repr(ALICE) == repr(Hashed(1, 1, 1, b"", b"")) == "Hashed(...)"


def test_the_pages_example_for_scram_is_what_the_rfc_makes_of_its_password() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "formats" / "access.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("user:$scrypt$")]
    user = parse_passwords(line).by_name["user"]
    assert user.scram is not None
    assert user.scram == derive_keys(b"pencil", user.scram.salt, 4096)
    assert verify(user, b"pencil")


def test_a_decoy_is_as_costly_as_a_user_always_the_same_and_no_passwords() -> None:
    cheap = Hashed(4, 8, 1, bytes(10), bytes(24), derive_keys(b"x", bytes(12), 5000))
    users = Users({"alice": ALICE, "bob": WITH_SCRAM, "carol": cheap}, b"s" * 32)
    kinds = set()
    for number in range(100):
        decoy = users.decoy(f"u{number}")
        assert decoy == Users({**users.by_name, "dave": WITH_SCRAM}, b"s" * 32).decoy(f"u{number}"), "not by the users"
        assert decoy.scram is not None
        kinds.add((decoy.log2_cost, len(decoy.salt), len(decoy.hash)))
        kinds.add((decoy.scram.iterations, len(decoy.scram.salt)))
    assert kinds == {(14, 16, 32), (4, 10, 24), (4096, 16), (5000, 12)}
    assert users.decoy("a") != users.decoy("b")
    assert users.decoy("a") != Users(users.by_name, b"t" * 32).decoy("a"), "only who has the secret can tell"
    assert not verify(Users({"carol": cheap}).decoy("nobody"), b"")
    assert Users({}).decoy("a").log2_cost == 14
