"""What was allowed once is not asked again, until users or rules change."""

from __future__ import annotations

import pytest

from penstock.access.acl import parse_acl
from penstock.access.authority import Authority
from penstock.access.needs import Need
from penstock.access.policy import SCRAM, UNPROVEN, Identity
from penstock.errors import NotAuthorized
from penstock.protocol.requests.messages import Pull
from penstock.protocol.requests.servers import Ping
from penstock.protocol.requests.sessions import AskSubscriptions
from penstock.protocol.requests.topics import DeleteTopic
from penstock.service.audit import Audit, Trail
from penstock.service.permissions import Permissions

PULL = Pull("orders:0", 0)


def made(rules: str) -> tuple[Permissions, Authority, Trail]:
    authority = Authority(lambda: bytes(32), lambda: 0)
    authority.set_acl(parse_acl(rules))
    audit = Audit(lambda: 0, lambda: 0.0)
    return Permissions(authority, audit, "192.0.2.1:5", Identity("ada", SCRAM)), authority, audit.trail


def test_a_refusal_says_what_would_allow_it_and_is_noted() -> None:
    permissions, _, trail = made("allow user bob consume orders")
    with pytest.raises(NotAuthorized) as caught:
        permissions.check_request(PULL)
    assert "allow user ada consume orders" in caught.value.hint
    assert [(one.act, one.name, one.allowed) for one in trail.take()] == [("Pull", "orders", False)]


def test_rules_count_as_soon_as_they_change() -> None:
    permissions, authority, trail = made("allow user ada consume orders")
    permissions.check_request(PULL)
    authority.set_acl(parse_acl("deny user ada consume orders"))
    with pytest.raises(NotAuthorized):
        permissions.check_request(PULL)
    assert len(trail.take()) == 1


def test_each_act_of_administration_is_noted() -> None:
    permissions, _, trail = made("allow user ada admin *")
    for _ in range(2):
        permissions.check_request(DeleteTopic("orders"))
    assert [(one.act, one.allowed, one.times) for one in trail.take()] == [("DeleteTopic", True, 2)]


def test_what_is_done_to_a_client_names_it_and_a_watch_is_one_act() -> None:
    permissions, _, trail = made("allow user ada admin *")
    for after in (0, 3, 9):
        permissions.check_request(AskSubscriptions(("d7",), False, 1.0, watch_after=after))
    permissions.check_request(
        AskSubscriptions(("d8",), False, 1.0, watch_after=5)
    )  # it does not begin at the beginning
    permissions.check_request(AskSubscriptions(("d7", "d9"), False, 1.0, disconnects=True))
    permissions.check_request(AskSubscriptions(("d9",), False, 1.0, disconnects=True))
    permissions.check_request(AskSubscriptions(("d7",), False, 1.0, watch_after=0))
    assert [(one.act, one.name, one.times) for one in trail.take()] == [
        ("WatchClient", "d7", 2),
        ("WatchClient", "d8", 1),
        ("DisconnectClient", "d7", 1),
        ("DisconnectClient", "d9", 2),
    ]


def test_a_refused_watch_names_the_client_too() -> None:
    permissions, _, trail = made("allow user ada view *")
    with pytest.raises(NotAuthorized):
        permissions.check_request(AskSubscriptions(("d7",), False, 1.0, watch_after=4))
    assert [(one.act, one.name, one.allowed) for one in trail.take()] == [("WatchClient", "d7", False)]


def test_who_becomes_nobody_may_only_what_is_open() -> None:
    permissions, _, trail = made("allow user ada consume orders")
    permissions.check_request(PULL)
    permissions.become(UNPROVEN)
    permissions.check_request(Ping())
    assert not permissions.meets(Need(("consume",), "orders"))
    assert trail.take() == (), "to ask is no act"
