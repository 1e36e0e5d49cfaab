"""The name server's settings."""

from __future__ import annotations

import pytest

from namesrv.settings import NamesrvSettings
from penstock.errors import InvalidConfig


def test_the_defaults_listen_on_the_loopback_interface() -> None:
    assert (NamesrvSettings().host, NamesrvSettings().port) == ("127.0.0.1", 9876)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "0.0.0.0"},
        {"status_host": "0.0.0.0", "status_port": 0},
    ],
)
def test_a_setting_outside_its_limits_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        NamesrvSettings(**wrong)  # type: ignore[arg-type]


def test_other_machines_are_let_in_where_it_is_said() -> None:
    assert NamesrvSettings(host="0.0.0.0", status_host="0.0.0.0", status_port=0, insecure=True).insecure
