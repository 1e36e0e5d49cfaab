"""Who a client says it is: from its arguments or the environment, and never to be read anywhere."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.client.credentials import Credentials, Steps, credentials_of, service_credentials
from penstock.errors import InvalidConfig, InvalidRequest, NotAuthorized
from penstock.protocol.requests.servers import LoginStep


def test_arguments_count_before_the_environment() -> None:
    environ = {"PENSTOCK_USER": "env", "PENSTOCK_PASSWORD": "p"}
    assert (credentials_of(environ=environ).user, credentials_of(environ=environ).password) == ("env", "p")
    assert credentials_of("me", "mine", environ=environ).user == "me"
    assert credentials_of(token="t", environ=environ) == Credentials(token="t")
    assert credentials_of("me", environ={"PENSTOCK_PASSWORD": "p"}).password == "p"
    assert credentials_of(environ={"PENSTOCK_TOKEN": "t"}).token == "t"
    assert not credentials_of(environ={}).logs_in


def test_secrets_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("lovelace\n")
    environ = {"PENSTOCK_USER": "ada", "PENSTOCK_CLIENT_PASSWORD_FILE": str(tmp_path / "secret")}
    assert credentials_of(environ=environ).password == "lovelace"
    with pytest.raises(InvalidConfig, match="PENSTOCK_CLIENT_TOKEN_FILE"):
        credentials_of(environ={"PENSTOCK_CLIENT_TOKEN_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"user": "a"}, "password"),
        ({"password": "a"}, "user"),
        ({"user": "a", "password": "b", "token": "c"}, "not both"),
        ({"token": b"c"}, "text"),
        ({"tls": 1.5}, "tls"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_without_their_values(given: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        credentials_of(environ={}, **given)


def test_no_secret_is_in_a_repr() -> None:
    for one in (Credentials("ada", "lovelace"), Credentials(token="lovelace"), service_credentials(b"lovelace", "g")):
        assert "lovelace" not in repr(one) + str(one)


@pytest.mark.parametrize(("said", "speaks"), [("1", True), ("true", True), ("", False), ("0", False), ("no", False)])
def test_tls_is_spoken_where_it_is_said(said: str, speaks: bool) -> None:
    context = credentials_of(environ={"PENSTOCK_TLS": said}).tls
    assert (context is not None) is speaks
    assert context is None or (context.check_hostname and context.minimum_version >= ssl.TLSVersion.TLSv1_2)
    assert credentials_of(tls=False, environ={"PENSTOCK_TLS": "1"}).tls is None


def test_a_file_that_holds_no_authority_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        with pytest.raises(InvalidConfig, match=str(path)):
            credentials_of(tls=str(path), environ={})


def test_a_service_names_the_certificate_that_it_cannot_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    ca, missing = str(tmp_path / "ca.pem"), str(tmp_path / "own.pem")
    with pytest.raises(InvalidConfig, match=r"tls_certificate: .*own.pem"):
        service_credentials(b"k", "broker", ca, (missing, ""))
    monkeypatch.setenv("PENSTOCK_CLIENT_CERTIFICATE", missing)
    with pytest.raises(InvalidConfig, match=r"PENSTOCK_CLIENT_CERTIFICATE: .*own.pem"):
        service_credentials(b"k", "gateway", ca)


def test_a_token_is_not_sent_where_others_can_listen() -> None:
    with pytest.raises(NotAuthorized, match="without TLS"):
        next(Credentials(token="t").steps("192.0.2.1"))
    for host in ("127.0.0.1", "::1", "localhost"):
        assert next(Credentials(token="t").steps(host)).data == b"t"


def answered(steps: Steps, *answers: bytes) -> None:
    """Runs a login whose server answers so."""
    next(steps)
    for answer in answers:
        steps.send(LoginStep(answer))


@pytest.mark.parametrize(
    "answers",
    [
        (b"",),
        (b"\xff",),
        (b"r=x,s=c2FsdHNhbHRzYWx0,i=4096",),  # another nonce
        (b"e=other-error",),
    ],
)
def test_a_server_that_is_not_the_right_one_is_not_believed(answers: tuple[bytes, ...]) -> None:
    with pytest.raises(NotAuthorized):
        answered(Credentials("ada", "lovelace").steps("h"), *answers)


def test_a_server_that_asks_for_a_minute_of_work_is_refused() -> None:
    steps = Credentials("ada", "lovelace").steps("h")
    nonce = next(steps).data.rpartition(b"r=")[2]
    with pytest.raises(NotAuthorized, match="more work"):
        steps.send(LoginStep(b"r=" + nonce + b"x,s=c2FsdHNhbHRzYWx0,i=9999999"))


def test_a_server_without_the_cluster_s_key_is_not_believed_by_a_service() -> None:
    with pytest.raises(NotAuthorized, match="another key"):
        answered(service_credentials(b"k" * 32, "gateway-1").steps("h"), bytes(32), bytes(32))
