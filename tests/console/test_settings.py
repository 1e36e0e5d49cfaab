from __future__ import annotations

import pytest

from console.settings import ConsoleSettings
from penstock.errors import InvalidConfig
from penstock.service.config import load_table


def test_a_console_without_users_stays_on_loopback_unless_that_is_meant() -> None:
    with pytest.raises(InvalidConfig, match="set password_file"):
        ConsoleSettings(host="0.0.0.0")
    assert ConsoleSettings(host="0.0.0.0", insecure=True).insecure


def test_passwords_do_not_travel_in_clear_text_beyond_loopback() -> None:
    with pytest.raises(InvalidConfig, match="clear text"):
        ConsoleSettings(host="10.0.0.1", password_file="users")
    assert ConsoleSettings(host="10.0.0.1", password_file="users", tls_certificate="c.pem").tls_certificate == "c.pem"
    assert ConsoleSettings(host="::1", password_file="users").host == "::1"


@pytest.mark.parametrize("wrong", [{"host": ""}, {"namesrv": ()}])
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        ConsoleSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["certificate", "key", "client_ca", "client_crl", "clients"])
def test_a_name_of_an_earlier_version_is_refused_with_the_one_that_it_has_now(name: str) -> None:
    told = f"{name} is no setting .it is called tls_{name} now"
    with pytest.raises(InvalidConfig, match=told):
        load_table(ConsoleSettings, {name: "x"}, {}, "PENSTOCK_CONSOLE")
    with pytest.raises(InvalidConfig, match=f"it is called tls_{name} now"):
        load_table(ConsoleSettings, {}, {f"PENSTOCK_CONSOLE_{name.upper()}": "x"}, "PENSTOCK_CONSOLE")
