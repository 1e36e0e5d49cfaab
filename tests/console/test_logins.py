from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from console import logins
from console.logins import ADMIN, FAILURES_MAX, FAILURES_S, VIEWER, Attempts, Logins, PasswordFile
from penstock.access.passwords import Hashed, Users, format_passwords
from penstock.access.passwords import _scrypt as scrypt
from penstock.errors import InvalidConfig
from tests.penstock.hand_clock import HandClock

T = TypeVar("T")


async def at_once(work: Callable[[], T]) -> T:
    return work()


def cheap(password: bytes) -> Hashed:
    """A password that is hashed at little cost."""
    return Hashed(4, 8, 1, b"s" * 16, scrypt(password, 4, 8, 1, b"s" * 16, 32))


def written(path: Path, **passwords: bytes) -> Path:
    path.write_text(format_passwords(Users({name: cheap(one) for name, one in passwords.items()}, b"k" * 32)))
    return path


async def test_users_of_a_file_are_viewers_and_some_administrators(tmp_path: Path) -> None:
    users = PasswordFile(written(tmp_path / "users", ada=b"right", bob=b"other"), ["ada"], at_once)
    assert await users.authenticate("ada", "right") == {VIEWER, ADMIN}
    assert await users.authenticate("bob", "other") == {VIEWER}
    for name, password in [("ada", "other"), ("nobody", "right"), ("ada", ""), ("ada", "x" * 5000), ("", "\ud800")]:
        assert await users.authenticate(name, password) == frozenset()


async def test_a_changed_file_counts_at_once_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "users", ada=b"old")
    users = PasswordFile(path, [], at_once)
    os.utime(written(path, ada=b"new"), ns=(1, 1))
    assert await users.authenticate("ada", "new") == {VIEWER}
    path.write_text("no such line")
    assert await users.authenticate("ada", "new") == {VIEWER}


def test_a_file_that_is_not_there_and_an_administrator_who_is_not_in_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read"):
        PasswordFile(tmp_path / "none", [], at_once)
    with pytest.raises(InvalidConfig, match="admins names eve"):
        PasswordFile(written(tmp_path / "users", ada=b"x"), ["eve"], at_once)


def test_a_login_ends_by_time_by_itself_and_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LOGINS_MAX", 2)
    clock = HandClock()
    book = Logins(clock, 60.0)
    token, login = book.open("ada", frozenset({VIEWER}))
    assert (book.find(token), login.is_admin, book.find("other")) == (login, False, None)
    clock.now += 60
    assert book.find(token) is None
    first, second, third = [book.open(name, frozenset({ADMIN}))[0] for name in "abc"]
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
        assert attempts.may("a")
        attempts.failed("a")
    assert not attempts.may("a")
    assert attempts.may("b")
    clock.now += FAILURES_S
    assert attempts.may("a")
    for other in ("b", "c"):
        attempts.failed(other)
    assert attempts.may("a"), "the oldest is forgotten where there are too many"
