"""Anonymous clients: who may come."""

from __future__ import annotations

import pytest

from gateway.login.auth import BAD_CREDENTIALS, NOT_AUTHORIZED, Anonymous, Credentials, Identity, Peer, is_loopback
from gateway.mqtt.reason_codes import Reason


@pytest.mark.parametrize(
    ("who", "peer", "admitted"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "::ffff:127.0.0.1", True),
        ("loopback", "::ffff:10.0.0.1", False),
        ("loopback", "10.0.0.1", False),
        ("loopback", "not an address", False),
        ("everyone", "10.0.0.1", True),
        ("nobody", "127.0.0.1", False),
    ],
)
def test_anonymous_clients_come_only_from_where_the_setting_says(who: str, peer: str, admitted: bool) -> None:
    answers: list[Identity | int] = []
    Anonymous(who).connect(Credentials("c", None, None, Peer(peer)), answers.append)
    assert answers == [Identity("c", "") if admitted else NOT_AUTHORIZED]


def test_a_foreign_web_page_in_a_browser_of_this_machine_is_no_local_client() -> None:
    answers: list[Identity | int] = []
    for page in ("", "https://evil.example"):
        for who in ("loopback", "everyone"):
            Anonymous(who).connect(Credentials("c", None, None, Peer("127.0.0.1", page=page)), answers.append)
    assert answers == [Identity("c", ""), Identity("c", ""), NOT_AUTHORIZED, Identity("c", "")]


def test_refused_credentials_are_told_apart_from_missing_ones() -> None:
    answers: list[Identity | int] = []
    Anonymous("nobody").connect(Credentials("c", "user", b"x", Peer("127.0.0.1")), answers.append)
    assert answers == [BAD_CREDENTIALS]


def test_a_password_is_not_shown() -> None:
    assert "hush" not in repr(Credentials("c", "user", b"hush", Peer("127.0.0.1")))


@pytest.mark.mqtt(old=("3.3.5-2",))
def test_nobody_publishes_to_the_systems_topics() -> None:
    identity = Identity("c", "")
    assert not Anonymous("everyone").may_publish(identity, "$SYS/broker")
    assert Anonymous("everyone").may_publish(identity, "a/$SYS")


def test_what_is_for_one_device_only_that_one_gets() -> None:
    may_subscribe = Anonymous("everyone").may_subscribe
    assert may_subscribe(Identity("d7", ""), "$p2p/d7")
    assert may_subscribe(Identity("d7", ""), "#")
    assert not may_subscribe(Identity("d7", ""), "$p2p/d8")
    assert not may_subscribe(Identity("d7", ""), "$p2p/+")


def test_a_zone_does_not_hide_a_loopback_address() -> None:
    assert is_loopback("::1%lo")


@pytest.mark.parametrize(
    ("who", "listener", "admitted"),
    [
        ("nobody", "open", True),
        ("nobody", "tcp", False),
        ("everyone", "closed", False),
        ("everyone", "tcp", True),
        ("everyone", "near", False),
    ],
)
def test_a_listener_may_have_a_rule_of_its_own(who: str, listener: str, admitted: bool) -> None:
    answers: list[Identity | Reason] = []
    at = {"open": "everyone", "closed": "nobody", "near": "loopback"}
    Anonymous(who, at).connect(Credentials("c", None, None, Peer("10.0.0.1", None, listener)), answers.append)
    assert answers == [Identity("c", "") if admitted else NOT_AUTHORIZED]
