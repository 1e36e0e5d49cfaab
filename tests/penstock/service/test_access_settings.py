"""What a port is told of logins: a port that others reach asks for one, and says how to mend it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidConfig
from penstock.service.access_settings import AccessSettings
from penstock.service.exposure import NATIVE


@pytest.mark.parametrize(
    "given", [{"password_file": "u"}, {"jwt_key_file": "k"}, {"insecure": True}], ids=["users", "tokens", "insecure"]
)
def test_a_port_that_asks_for_a_login_may_be_reached_by_others(given: dict[str, Any]) -> None:
    AccessSettings(**given).check_access("0.0.0.0", NATIVE)


def test_a_port_that_asks_for_none_is_for_this_machine_and_says_the_lines_that_mend_it() -> None:
    AccessSettings().check_access("127.0.0.1", NATIVE)
    with pytest.raises(InvalidConfig, match="asks for no login") as refused:
        AccessSettings(tls_certificate="c").check_access("0.0.0.0", NATIVE)
    for line in ("penstock user add NAME --file users", 'password_file = "users"', "insecure = true"):
        assert line in refused.value.hint


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"tls_clients": "some"}, "none, optional, required"),
        ({"tls_clients": "required", "tls_certificate": "c"}, "tls_client_ca"),
        ({"tls_key": "k"}, "tls_certificate"),
        ({"acl_file": "r"}, "password_file"),
        ({"jwt_algorithms": ("none",), "jwt_key_file": "k"}, "none"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        AccessSettings(**given).check_access("127.0.0.1", NATIVE)
    assert word in str(refused.value) + refused.value.hint


GUARDED = {"password_file": "u", "tls_certificate": "c"}


@pytest.mark.parametrize("given", [GUARDED, {"insecure": True}])
def test_status_pages_may_be_reached_by_others_where_they_ask_for_a_login(given: dict[str, Any]) -> None:
    AccessSettings(**given).check_pages("status_host", "0.0.0.0")
    assert AccessSettings(**given).guards_pages("0.0.0.0") == (given is GUARDED)
    assert not AccessSettings(**given).guards_pages("127.0.0.1"), "probes of this machine need no secret"


@pytest.mark.parametrize("given", [{}, {"password_file": "u"}, {"tls_certificate": "c"}])
def test_status_pages_without_users_or_without_tls_are_for_this_machine(given: dict[str, Any]) -> None:
    AccessSettings(**given).check_pages("status_host", "::1")
    with pytest.raises(InvalidConfig, match=r"status_host is '0\.0\.0\.0'") as refused:
        AccessSettings(**given).check_pages("status_host", "0.0.0.0")
    for line in ("password_file", "tls_certificate", "insecure = true"):
        assert line in refused.value.hint
