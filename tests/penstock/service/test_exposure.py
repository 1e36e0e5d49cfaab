"""Which hosts other machines reach, and what a service says that would listen there without a login."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig
from penstock.service.exposure import NATIVE, is_loopback, refuse_exposed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost", "::ffff:127.0.0.1"])
def test_only_this_machine_reaches_a_loopback_address(host: str) -> None:
    assert is_loopback(host)
    refuse_exposed("host", host, False, NATIVE)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0", "10.0.0.5", "::ffff:10.0.0.5", "fe80::1", "localhost.a.b"])
def test_other_machines_may_reach_every_other_address(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidConfig):
        refuse_exposed("host", host, False, NATIVE)
    refuse_exposed("host", host, True, NATIVE)


def test_the_refusal_says_why_and_which_line_mends_it() -> None:
    with pytest.raises(InvalidConfig) as refused:
        refuse_exposed("status_host", "0.0.0.0", False, NATIVE)
    assert refused.value.told.splitlines() == [
        "status_host is '0.0.0.0': other machines reach it, and this port asks for no login: a peer reads and"
        " writes all messages, and takes sessions and groups over",
        '       listen on this machine alone: status_host = "127.0.0.1"',
        "       or, in a network of trusted machines, set insecure = true",
    ]
    assert str(refused.value).endswith(
        'status_host = "127.0.0.1"; or, in a network of trusted machines, set insecure = true)'
    )
