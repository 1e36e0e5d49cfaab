from __future__ import annotations

import os
import time
from pathlib import Path

import jwt
import pytest

from console import logins
from console.logins import FAILURES_MAX, FAILURES_S, Attempts, Logins, UserFiles
from penstock.access.acl import ADMIN, CONSUME, NATIVE, VIEW
from penstock.access.passwords import Hashed, Users, format_passwords
from penstock.access.passwords import _scrypt as scrypt
from penstock.access.policy import PASSWORD, TOKEN, Identity
from penstock.service.access_files import AccessFiles
from penstock.service.access_settings import AccessSettings
from penstock.world import real_world
from tests.penstock.hand_clock import HandClock

SECRET = "k" * 40


def cheap(password: bytes) -> Hashed:
    """A password that is hashed at little cost."""
    return Hashed(4, 8, 1, b"s" * 16, scrypt(password, 4, 8, 1, b"s" * 16, 32))


def written(path: Path, **passwords: bytes) -> Path:
    path.write_text(format_passwords(Users({name: cheap(one) for name, one in passwords.items()}, b"k" * 32)))
    return path


def user_files(passwords: Path, rules: str = "", **more: str) -> UserFiles:
    settings = AccessSettings(password_file=str(passwords), acl_file=rules, **more)  # type: ignore[arg-type]
    return UserFiles(AccessFiles(settings, real_world(), None))


async def test_users_have_the_passwords_of_one_file_and_the_rights_of_another(tmp_path: Path) -> None:
    passwords, rules = written(tmp_path / "users", ada=b"right", bob=b"other"), tmp_path / "rules"
    rules.write_text("allow user ada admin *\nallow user bob view *\nallow user bob consume orders\n")
    users = user_files(passwords, str(rules))
    assert await users.of_password("ada", "right") == Identity("ada", PASSWORD)
    for name, password in [("ada", "other"), ("nobody", "right"), ("ada", ""), ("ada", "x" * 5000), ("", "\ud800")]:
        assert await users.of_password(name, password) is None
    people = ("ada", "bob", "eve")
    may = {(one, action): users.refusal(users.named(one), action) is None for one in people for action in NATIVE}
    assert [one for one, is_allowed in may.items() if is_allowed] == [
        *[("ada", action) for action in NATIVE],
        ("bob", VIEW),
    ]
    bob = users.named("bob")
    assert users.refusal(bob, CONSUME, "orders") is None
    assert "allow user bob admin *" in str(users.refusal(bob, ADMIN).hint)  # type: ignore[union-attr]
    assert (users.names(), [rule.line for rule in users.rules() or ()]) == (["ada", "bob"], [1, 2, 3])


async def test_changed_files_count_and_broken_ones_change_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "users", ada=b"old")
    users = user_files(path)
    ada = users.named("ada")
    assert (users.rules(), users.refusal(ada, VIEW), users.refusal(ada, ADMIN) is None) == (None, None, False)
    os.utime(written(path, ada=b"new"), ns=(1, 1))
    assert await users.of_password("ada", "new") == ada
    path.write_text("no such line")
    assert await users.of_password("ada", "new") == ada
    os.utime(written(path, bob=b"new"), ns=(2, 2))
    assert await users.of_password("ada", "new") is None
    assert users.refusal(ada, VIEW) is not None, "a login of a user who is gone is worth nothing"
    assert not users.still(ada)


async def test_a_token_is_a_login_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET)
    users = user_files(written(tmp_path / "users"), jwt_key_file=str(tmp_path / "key"))
    assert users.takes_tokens
    ends_s = int(time.time()) + 600
    for claims, key, user in (
        ({"sub": "ada", "exp": ends_s}, SECRET, "ada"),
        ({"sub": "ada", "exp": 1}, SECRET, ""),
        ({"sub": "ada", "exp": ends_s}, "x" * 40, ""),
    ):
        found = await users.of_token(jwt.encode(claims, key, "HS256"))
        assert (found.user if found else "") == user
    assert await users.of_token("x" * 100_000) is None
    assert (users.still(Identity("ada", TOKEN, ends_s)), users.still(Identity("ada", TOKEN, 1))) == (True, False)
    assert users.named("ada").how == TOKEN


def test_a_login_ends_by_time_by_itself_and_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LOGINS_MAX", 2)
    clock = HandClock()
    book = Logins(clock, 60.0)
    token, login = book.open(Identity("ada"))
    assert (book.find(token), book.find("other")) == (login, None)
    clock.now += 60
    assert book.find(token) is None
    first, second, third = [book.open(Identity(name))[0] for name in "abc"]
    assert book.find(first) is None
    assert (book.find(second) is not None, book.find(third) is not None) == (True, True)
    book.close(third)
    book.close(third)
    assert book.find(third) is None
    assert len({login.csrf, token, first, second, third}) == 5


def test_an_address_that_fails_again_and_again_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "ADDRESSES_MAX", 2)
    clock = HandClock()
    attempts = Attempts(clock)
    for _ in range(FAILURES_MAX):
        assert attempts.begin("a"), "each counts before its check has ended"
    assert not attempts.begin("a")
    attempts.proves_right("a")
    assert attempts.begin("a")
    assert not attempts.begin("a")
    assert attempts.begin("b")
    clock.now += FAILURES_S
    assert attempts.begin("a")
    attempts.begin("c")
    assert all([attempts.begin("a") for _ in range(FAILURES_MAX)]), "the oldest is forgotten where there are too many"
