"""The options of a login: what fits, where secrets may be, and what they become on each machine."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.spark.logins import NO_LOGIN, Login, login_of, refuse_secrets
from penstock.spark.options import parse
from penstock.spark.reading import describe

TOPIC = {"subscribe": "t"}


def test_files_are_read_where_the_connection_is_made(tmp_path: Path) -> None:
    file = tmp_path / "password"
    login = pickle.loads(pickle.dumps(login_of({"user": "billing", "password_file": str(file)})))
    with pytest.raises(InvalidConfig, match="password"):
        login.credentials()
    file.write_text("pencil\n")
    made = login.credentials()
    assert (made.user, made.password, made.token) == ("billing", "pencil", "")


def test_what_a_query_says_counts_for_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_USER", "other")
    monkeypatch.setenv("PENSTOCK_PASSWORD", "secret")
    assert NO_LOGIN.credentials().user == "other"
    assert Login(user="billing", password="pencil").credentials().password == "pencil"
    token = Login(token="a.b.c").credentials()
    assert (token.user, token.password, token.token) == ("", "", "a.b.c")


@pytest.mark.parametrize(
    "given",
    [
        {"user": "a"},
        {"password": "geheim"},
        {"passwordFile": "f"},
        {"user": "a", "password": "geheim", "token": "geheim"},
    ],
)
def test_what_does_not_fit_is_refused_and_not_told(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse(TOPIC | given, stream=True)
    assert "geheim" not in str(raised.value)


def test_no_text_of_a_query_has_its_secrets() -> None:
    options = parse(TOPIC | {"user": "a", "password": "geheim"}, stream=True)
    assert "geheim" not in repr(options)
    assert "geheim" not in "\n".join(describe(options))
    assert options.login.password == "geheim"


@pytest.mark.parametrize("name", ["password", "TOKEN"])
def test_a_table_keeps_no_secret(name: str) -> None:
    with pytest.raises(InvalidConfig, match="File") as raised:
        refuse_secrets({"subscribe": "t", name: "geheim"})
    assert "geheim" not in str(raised.value)
    refuse_secrets({"user": "a", "passwordFile": "f", "tokenFile": "f"})


def test_an_authority_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidConfig, match="none"):
        Login(tls="none.pem").credentials()
